//! Starts `toolyard-index` in a sandbox: it may use its index folder, a folder for temporary files, and the network
//! only if the index is in an object store.

use std::path::{Path, PathBuf};
use toolyard_knowledge::index::{
    ProgramError,
    names::private_folder,
    remote::{Launch, ProgramLocator, RunningProgram},
};
use toolyard_sandbox::launch::{ConfinedLauncher, Confinement, Program};

/// Variables that the index program gets from this process; everything else it needs comes over the pipe.
const PASSED_ON: [&str; 2] = ["TOOLYARD_LOG", "RUST_BACKTRACE"];
/// Variables with the path of a file that an object store's credentials are read from.
const CREDENTIAL_FILES: [&str; 2] = ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"];

/// Finds and starts the index program of one index.
pub(crate) struct IndexProgram {
    finder: ProgramLocator,
    launcher: ConfinedLauncher,
    /// The folder of the index; `None` where it lies in an object store.
    folder: Option<PathBuf>,
    /// Where its temporary files go, in a folder for each process of Toolyard.
    temporary: PathBuf,
}

impl IndexProgram {
    pub(crate) fn new(finder: ProgramLocator, folder: Option<PathBuf>, temporary: PathBuf) -> Self {
        Self { finder, launcher: ConfinedLauncher::new(), folder, temporary }
    }

    fn walls(&self, program: &Path, temporary: &Path) -> Confinement {
        let mut walls = Confinement {
            read: vec![program.to_owned()],
            write: self.folder.iter().cloned().chain([temporary.to_owned()]).collect(),
            network: self.folder.is_none(),
        };
        if self.folder.is_none() {
            walls.read.extend(CREDENTIAL_FILES.iter().filter_map(std::env::var_os).map(PathBuf::from));
        }
        walls
    }

    /// A folder for temporary files of this process. Those of processes that are gone are removed.
    fn temporary(&self) -> std::io::Result<PathBuf> {
        private_folder(&self.temporary)?;
        for entry in std::fs::read_dir(&self.temporary)?.flatten() {
            let owner = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            if owner.is_some_and(|id| !Path::new("/proc").join(id.to_string()).exists())
                && let Err(error) = std::fs::remove_dir_all(entry.path())
            {
                tracing::debug!(%error, "temporary files of a dead process could not be removed");
            }
        }
        let own = self.temporary.join(std::process::id().to_string());
        private_folder(&own)?;
        Ok(own)
    }
}

impl Launch for IndexProgram {
    fn find(&self) -> Result<(), ProgramError> {
        self.finder.find().map(drop)
    }

    fn start(&self) -> Result<RunningProgram, ProgramError> {
        let program = self.finder.find()?;
        let failed = |e: std::io::Error| ProgramError::NotStarted(format!("its folder cannot be made: {e}"));
        // The sandbox can only grant folders that exist.
        self.folder.as_deref().map_or(Ok(()), private_folder).map_err(failed)?;
        let temporary = self.temporary().map_err(failed)?;
        let mut env: Vec<(String, String)> =
            PASSED_ON.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect();
        env.push(("TMPDIR".to_owned(), temporary.display().to_string()));
        let path = program.display().to_string();
        let started = Program { program: &path, args: &[], cwd: Some(&temporary), env: &env };
        let walls = self.walls(&program, &temporary);
        let command = self.launcher.command(&walls, &started).map_err(ProgramError::NotStarted)?;
        RunningProgram::spawn(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walls_leave_the_index_its_folders_and_the_network_only_for_an_object_store() {
        let local = IndexProgram::new(ProgramLocator::default(), Some("/index".into()), "/tmp/x".into());
        let walls = local.walls(Path::new("/bin/toolyard-index"), Path::new("/tmp/x/1"));
        assert!(!walls.network);
        assert_eq!(walls.write, [Path::new("/index"), Path::new("/tmp/x/1")]);
        assert_eq!(walls.read, [Path::new("/bin/toolyard-index")]);
        let remote = IndexProgram::new(ProgramLocator::default(), None, "/tmp/x".into());
        let walls = remote.walls(Path::new("/bin/toolyard-index"), Path::new("/tmp/x/1"));
        assert!(walls.network && walls.write == [Path::new("/tmp/x/1")]);
    }

    #[test]
    fn temporary_files_of_processes_that_are_gone_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let program = IndexProgram::new(ProgramLocator::default(), None, dir.path().to_owned());
        let gone = dir.path().join(u32::MAX.to_string());
        std::fs::create_dir(&gone).unwrap();
        let own = program.temporary().unwrap();
        assert!(own.is_dir() && !gone.exists());
        assert_eq!(program.temporary().unwrap(), own);
    }
}
