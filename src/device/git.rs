//! Revision and dirty state of the project, for a record's environment; a folder of it as it was at another revision.
//!
//! Costs a process: ask only when something is about to be measured, so that an unchanged run never does.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::ask::ask;

pub use super::ask::Unanswered;

/// State of a working tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Full hash of the commit; `None` before the first one.
    pub revision: Option<String>,
    /// Files differ from the commit, or are unknown to it.
    pub dirty: bool,
}

/// Longest wait for git; the state of a huge tree is not worth more.
pub const LIMIT: Duration = Duration::from_secs(5);

/// State of the tree that `folder` is in.
///
/// # Errors
/// There is no git or no repository, or git takes longer than `limit`.
pub fn tree(folder: &Path, limit: Duration) -> Result<Tree, Unanswered> {
    let mut git = Command::new("git");
    git.args(["--no-optional-locks", "status", "--porcelain=v2", "--branch"])
        .current_dir(folder)
        // Set by git's own hooks, and then about another tree.
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE");
    ask(&mut git, limit).map(|answer| parse(&answer))
}

/// Writes what `folder` (a folder of the tree that `root` is in, relative to `root`) held at `revision` to the same place below the
/// empty folder `into`, and gives the full hash of the commit. The tree and its index stay as they are.
///
/// # Errors
/// There is no git, no such revision or no such folder in it, or git takes longer than `limit` for one of its steps.
pub fn export(root: &Path, revision: &str, folder: &str, into: &Path, limit: Duration) -> Result<String, Unanswered> {
    let index = into.join(".index");
    let at = |folder: &Path, arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(arguments)
            .current_dir(folder)
            .env_remove("GIT_DIR")
            .env_remove("GIT_WORK_TREE")
            .env("GIT_INDEX_FILE", &index);
        ask(&mut git, limit).map(|answer| answer.trim().to_owned())
    };
    let git = |arguments: &[&str]| at(root, arguments);
    let named = |what: String| git(&["rev-parse", "--verify", "--end-of-options", &what]);
    // Newer versions of git repeat the option before their answer.
    let hash = |answer: String| answer.lines().last().unwrap_or_default().to_owned();
    let commit = named(format!("{revision}^{{commit}}")).map(hash)?;
    let tree = named(format!("{commit}:./{folder}")).map(hash)?;
    git(&["read-tree", &tree])?;
    // In a folder of the tree it would write that folder's files alone.
    let top = git(&["rev-parse", "--show-toplevel"])?;
    at(Path::new(&top), &["checkout-index", "--all", "--force", &format!("--prefix={}/{folder}/", into.display())])?;
    Ok(commit)
}

fn parse(answer: &str) -> Tree {
    let revision = answer.lines().find_map(|line| line.strip_prefix("# branch.oid "));
    Tree {
        revision: revision.filter(|&revision| revision != "(initial)").map(str::to_owned),
        dirty: answer.lines().any(|line| !line.starts_with('#')),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn answers_are_read() {
        let clean = "# branch.oid 0123abcd\n# branch.head main\n";
        assert_eq!(parse(clean), Tree { revision: Some("0123abcd".into()), dirty: false });
        assert!(parse(&format!("{clean}? new.txt\n")).dirty);
        assert!(parse(&format!("{clean}1 .M N... 100644 100644 100644 a b src/lib.rs\n")).dirty);
        assert_eq!(parse("# branch.oid (initial)\n? a\n"), Tree { revision: None, dirty: true });
    }

    #[test]
    fn a_real_tree_is_clean_until_a_file_is_added() {
        let folder = tempfile::tempdir().expect("a folder");
        let git = |arguments: &[&str]| {
            let identity = ["-c", "user.name=n", "-c", "user.email=n@example.org"];
            let mut command = Command::new("git");
            command.args(identity).args(arguments).current_dir(folder.path()).stdout(Stdio::null());
            command.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
            command.status().is_ok_and(|status| status.success())
        };
        if !git(&["init", "-q"]) {
            eprintln!("not tried: this host has no git");
            return;
        }
        assert!(git(&["commit", "-q", "--allow-empty", "-m", "first"]));
        let clean = tree(folder.path(), LIMIT).expect("a tree");
        assert!(!clean.dirty && clean.revision.as_ref().is_some_and(|revision| revision.len() >= 40), "{clean:?}");
        std::fs::write(folder.path().join("new.txt"), "").expect("written");
        assert_eq!(tree(folder.path(), LIMIT).expect("a tree"), Tree { dirty: true, ..clean });
    }

    #[test]
    fn a_folder_outside_every_repository_has_no_state() {
        let folder = tempfile::tempdir().expect("a folder");
        // Holds as well where git is not installed: then it does not start.
        assert!(tree(folder.path(), LIMIT).is_err());
    }
}
