//! A data folder that is taken away under the broker, and one that is not ours to use.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::{Ground, Rig, Story};

fn with_records(rig: &mut Rig) -> Result<Story> {
    rig.launch()?;
    let mut wire = rig.connect()?;
    let story = Story::new("kept", 1);
    story.create(&mut wire)?;
    let produced = story.produce(&mut wire, 0, "before", 0..10)?;
    ensure!(produced.code == 0, "{produced:?}");
    Ok(story)
}

/// The folder is removed under an idle broker: it ends by itself.
///
/// # Errors
/// When it is otherwise.
pub fn removed(_: &mut Ground) -> Result<()> {
    let mut rig = Rig::new()?;
    with_records(&mut rig)?;
    fs::remove_dir_all(rig.data())?;
    let ending = rig.wait_for_end()?;
    ending.expect_error(&["data", "removed", "nothing is acknowledged any more"])?;
    ensure!(!ending.log.contains("nothing acknowledged is lost"), "a lie in\n{}", ending.log);
    Ok(())
}

/// The folder is moved away: the broker ends, and with it back in its place nothing is lost.
///
/// # Errors
/// When it is otherwise.
pub fn moved(_: &mut Ground) -> Result<()> {
    let mut rig = Rig::new()?;
    let story = with_records(&mut rig)?;
    let elsewhere = rig.data().with_file_name("elsewhere");
    fs::rename(rig.data(), &elsewhere)?;
    story.outage(|| {
        let ending = rig.wait_for_end()?;
        ending.expect_error(&["moved away", "put the data folder back"])?;
        fs::rename(&elsewhere, rig.data())?;
        rig.launch()
    })?;
    story.judge(&mut rig.connect()?).map(drop)
}

/// The journal that is being written is removed: not one record is acknowledged into it.
///
/// # Errors
/// When it is otherwise.
pub fn removed_journal(_: &mut Ground) -> Result<()> {
    let mut rig = Rig::new()?;
    let story = with_records(&mut rig)?;
    let mut wire = rig.connect()?;
    fs::remove_dir_all(rig.data().join("brokers"))?;
    if let Ok(produced) = story.produce(&mut wire, 0, "into nothing", 0..10) {
        ensure!(produced.code != 0, "acknowledged into a file that is gone: {produced:?}");
    }
    let ending = rig.wait_for_end()?;
    ending.expect_error(&["was removed while it was written", "nothing is acknowledged any more"])
}

/// Folders that cannot be used, each with what to do.
///
/// # Errors
/// When it is otherwise.
pub fn not_ours(_: &mut Ground) -> Result<()> {
    // Read-only, before the first start and with data in it.
    let mut rig = Rig::on_small(64 << 20)?;
    rig.small()?.read_only(true)?;
    rig.launch_refused()?.expect_error(&["read-only", "name another directory"])?;
    rig.small()?.read_only(false)?;
    let story = with_records(&mut rig)?;
    rig.stop()?;
    rig.small()?.read_only(true)?;
    rig.launch_refused()?.expect_error(&["read-only", "mount it for writing"])?;
    rig.small()?.read_only(false)?;
    rig.launch()?;
    story.judge(&mut rig.connect()?)?;
    rig.stop()?;
    // Forbidden: the folder above, the folder itself, one inside. Root may everything, unless it has
    // no capabilities.
    rig.through(&["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]);
    let above = rig.data().parent().context("no folder above")?.to_owned();
    for folder in [above, rig.data().to_owned(), rig.data().join("brokers")] {
        let usual = fs::metadata(&folder)?.permissions();
        set_mode(&folder, 0o500)?;
        if !folder.ends_with("small") {
            let ending = rig.launch_refused()?;
            ending.expect_error(&["denied", "give it the directory, or name another one"])?;
        }
        set_mode(&folder, 0)?;
        let ending = rig.launch_refused()?;
        ending.expect_error(&["denied", "give it the directory, or name another one"])?;
        fs::set_permissions(&folder, usual)?;
    }
    // A file in its place.
    let file = rig.data().with_file_name("file");
    fs::write(&file, "not a folder")?;
    let data = rig.data().to_owned();
    rig.set_data(file);
    rig.launch_refused()?.expect_error(&["a file stands where a directory has to be"])?;
    rig.set_data(data);
    rig.launch()?;
    story.judge(&mut rig.connect()?).map(drop)
}

fn set_mode(folder: &std::path::Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(folder, fs::Permissions::from_mode(mode))?)
}
