//! Store and metadata carry one cluster id (E-W3): a broker that finds them apart refuses to start,
//! because metadata that was lost or exchanged is no reason to delete or hide data.

use bytes::Bytes;
use talos_meta::{ClusterId, Meta};
use talos_storage::{ErrorKind, FilePath, Prefix, Storage};

use crate::broker::Error;

/// What the store's file begins with; the id and a line feed follow.
const MAGIC: &str = "talos cluster 1 ";
/// More than the file has.
const READ_BYTES: u64 = 256;

/// The cluster that `storage` and `meta` belong to; made when both are empty.
pub(crate) async fn join(storage: &dyn Storage, meta: &Meta) -> Result<ClusterId, Error> {
    let stored = read(storage).await?;
    let known = meta.cluster().await?.map(|cluster| cluster.id);
    match (stored, known) {
        (Some(stored), Some(known)) if stored == known => Ok(known),
        (Some(stored), Some(known)) => Err(Error::Cluster(format!(
            "the store belongs to cluster {stored}, the metadata to cluster {known}: point the \
             broker at the metadata that was used with this store"
        ))),
        (Some(stored), None) => Err(Error::Cluster(format!(
            "the store belongs to cluster {stored}, but the metadata is empty: it was lost or it is \
             another one; restore it, or use an empty store for a new cluster"
        ))),
        (None, known) => begin(storage, meta, known).await,
    }
}

/// Marks an empty store, after the metadata.
async fn begin(
    storage: &dyn Storage,
    meta: &Meta,
    known: Option<ClusterId>,
) -> Result<ClusterId, Error> {
    for prefix in [Prefix::Brokers, Prefix::Topics] {
        if let Some(file) = storage.list(prefix, None).await?.first() {
            return Err(Error::Cluster(format!(
                "the store has data ({}) but does not say of which cluster: its file {} was lost",
                file.path,
                FilePath::Cluster
            )));
        }
    }
    if let Some(known) = known
        && !meta.brokers().await?.is_empty()
    {
        return Err(Error::Cluster(format!(
            "the metadata is that of cluster {known}, but the store is empty: it was lost or it is \
             another one"
        )));
    }
    let id = meta.create_cluster().await?.id;
    let content = Bytes::from(format!("{MAGIC}{id}\n"));
    if let Err(error) = storage.publish(&FilePath::Cluster, vec![content]).await {
        // Another broker's start, or an unknown outcome: what stands there decides.
        match error.kind() {
            ErrorKind::Exists | ErrorKind::Uncertain => {}
            ErrorKind::Fenced
            | ErrorKind::Unavailable
            | ErrorKind::Full
            | ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::Fatal => return Err(error.into()),
        }
    }
    match read(storage).await? {
        Some(stored) if stored == id => Ok(id),
        stored => Err(Error::Cluster(format!(
            "the store could not be marked as cluster {id}: it says {stored:?}; try again"
        ))),
    }
}

async fn read(storage: &dyn Storage) -> Result<Option<ClusterId>, Error> {
    let bytes = match storage.read(&FilePath::Cluster, 0..READ_BYTES).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let text = std::str::from_utf8(&bytes).ok();
    let id = text.and_then(|text| text.strip_prefix(MAGIC)?.strip_suffix('\n'));
    let corrupt = || Error::Cluster(format!("the store's file {} is corrupt", FilePath::Cluster));
    id.and_then(|id| id.parse().ok()).map(Some).ok_or_else(corrupt)
}
