//! What administrators ask of a shard: ListGroups, DescribeGroups, DeleteGroups.

use std::collections::BTreeSet;

use super::super::api::{Code, DescribedGroup, ListedGroup, Text};
use super::super::records::Record;
use super::super::state::{Reply, State, Token};
use super::offsets::tombstone;
use super::{After, Shard};

impl Shard {
    /// ListGroups: both filters empty, or in any case of letters the names to show.
    pub fn list(&self, states: &[Text], types: &[Text]) -> Vec<ListedGroup> {
        let shows = |filter: &[Text], name: &str| {
            filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
        };
        if !shows(types, "classic") {
            return Vec::new();
        }
        let groups = self.groups.iter().filter(|(_, e)| shows(states, e.group.state.name()));
        groups
            .map(|(id, entry)| ListedGroup {
                group_id: id.clone(),
                protocol_type: entry.group.protocol_type.clone().unwrap_or_else(|| "".into()),
                state: entry.group.state.name(),
            })
            .collect()
    }

    /// DescribeGroups, one group.
    pub fn describe(&self, group_id: &Text) -> DescribedGroup {
        let Some(entry) = self.groups.get(group_id) else {
            return DescribedGroup {
                code: Code::GroupIdNotFound,
                message: Some(format!("Group {group_id} not found.")),
                group_id: group_id.clone(),
                state: State::Dead.name(),
                protocol_type: "".into(),
                protocol_data: "".into(),
                members: Vec::new(),
            };
        };
        let (protocol_data, members) = entry.group.describe();
        DescribedGroup {
            code: Code::None,
            message: None,
            group_id: group_id.clone(),
            state: entry.group.state.name(),
            protocol_type: entry.group.protocol_type.clone().unwrap_or_else(|| "".into()),
            protocol_data,
            members,
        }
    }

    /// DeleteGroups, one group: answered once durable.
    pub fn delete(&mut self, group_id: &Text, token: Token) {
        let code = match self.groups.get(group_id).map(|entry| entry.group.state) {
            None => Code::GroupIdNotFound,
            Some(State::Empty) => return self.delete_group(group_id, Some(token)),
            // Being deleted: whether it will be gone is not known yet.
            Some(State::Dead) => Code::CoordinatorNotAvailable,
            Some(_) => Code::NonEmptyGroup,
        };
        self.replies.push((token, Reply::Code(code)));
    }

    /// Removes an empty group with all its keys, those of commits under way too.
    pub(super) fn delete_group(&mut self, id: &Text, token: Option<Token>) {
        let Some(entry) = self.groups.get_mut(id) else { return };
        entry.group.state = State::Dead;
        entry.group.drop_pending();
        let mut keys = entry.commits.keys().cloned().collect::<BTreeSet<_>>();
        keys.extend(self.fold.group(id).into_iter().flat_map(|k| k.offsets.keys().cloned()));
        let mut records: Vec<_> = keys.iter().map(|key| tombstone(id, key)).collect();
        records.push(Record::Group { group: id.clone(), value: None });
        self.enqueue(id.clone(), records, After::Deleted { token });
        self.index(id);
    }
}
