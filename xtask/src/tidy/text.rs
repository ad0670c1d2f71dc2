//! Rules for any text file: headers, forbidden words, tabs, trailing spaces, line ends.
//!
//! Forbidden are names of package registry hosts and absolute paths of one machine: what is
//! committed works anywhere. The words stand here in pieces, so that this file passes its own check.

/// Hosts that serve packages; which one to use is a machine's business.
const HOSTS: &[&str] = &[
    concat!("artifact", "ory"),
    concat!("crates", ".io:"),
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("npm", "js.org"),
    concat!("repo.maven.", "apache.org"),
    concat!("repo1.maven", ".org"),
    concat!("python", "hosted.org"),
    concat!("pypi", ".org/simple"),
    concat!("proxy.golang", ".org"),
    concat!("sum.golang", ".org"),
];

/// Folders of one machine.
const PATHS: &[&str] = &[
    concat!("/wo", "rk"),
    concat!("/ro", "ot"),
    concat!("/fa", "rm"),
    concat!("/tmp/", "bash"),
    concat!("/ho", "me/"),
];

/// Endings of files in which tabs are the custom of the language.
const TABS: &[&str] = &[".go", "go.mod", "go.sum", "Makefile"];

/// Complains about each line that breaks a rule.
pub(super) fn check(path: &str, content: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if path.ends_with(".rs") && !content.trim_start().starts_with("//!") {
        complaints.push(format!("{path}:1: no `//!` header: what is this file?"));
    }
    if !content.is_empty() && !content.ends_with('\n') {
        complaints.push(format!("{path}: no line break at the end"));
    }
    let tabs = TABS.iter().any(|ending| path.ends_with(ending));
    for (i, line) in content.split('\n').enumerate() {
        let mut complain = |what: &str| complaints.push(format!("{path}:{}: {what}", i + 1));
        if line.ends_with([' ', '\t', '\r']) {
            complain("space at the end of the line");
        }
        if !tabs && line.contains('\t') {
            complain("tab");
        }
        if let Some(host) = HOSTS.iter().find(|host| line.contains(**host)) {
            complain(&format!("names a package registry host: {host}"));
        }
        if let Some(folder) = PATHS.iter().find(|folder| names_folder(line, folder)) {
            complain(&format!("names a folder of one machine: {folder}"));
        }
    }
    complaints
}

/// Whether a line names this absolute folder, and not only a path that contains its name.
fn names_folder(line: &str, folder: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | ')');
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + folder.len()..].chars().next();
        // `//root` is what a URL or a doubled separator looks like, `<root/>` a tag.
        !before.is_some_and(|c| word(c) || c == '/' || c == '<')
            && (folder.ends_with('/') || !after.is_some_and(|c| c.is_alphanumeric() || c == '_'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_files_pass() {
        assert!(check("a.rs", "//! What.\n\nfn main() {}\n").is_empty());
        assert!(check("a.go", "\tx\n").is_empty());
        assert!(check("empty", "").is_empty());
    }

    #[test]
    fn each_rule_is_found_with_its_line() {
        assert_eq!(check("a.rs", "fn main() {}\n").len(), 1);
        assert_eq!(check("a.md", "x \n"), ["a.md:1: space at the end of the line"]);
        assert_eq!(check("a.md", "x\r\n"), ["a.md:1: space at the end of the line"]);
        assert_eq!(check("a.md", "\n\tx\n"), ["a.md:2: tab"]);
        assert_eq!(check("a.md", "x"), ["a.md: no line break at the end"]);
    }

    #[test]
    fn machine_folders_are_found_only_as_folders() {
        for folder in PATHS {
            let folder = folder.trim_end_matches('/');
            for line in [format!("cd {folder}/x\n"), format!("\"{folder}/\"\n")] {
                assert_eq!(check("a.md", &line).len(), 1, "{line}");
            }
            for line in
                [format!("net{folder}\n"), format!("{folder}ed\n"), format!("a{folder}/b\n")]
            {
                assert!(check("a.md", &line).is_empty(), "{line}");
            }
        }
    }

    #[test]
    fn registry_hosts_are_found() {
        for host in HOSTS {
            assert_eq!(check("a.json", &format!("https://{host}/x\n")).len(), 1);
        }
    }
}
