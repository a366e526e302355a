//! Which of the processes on a GPU are not mlarun's own: NVML names them all by the host's numbers, which a container may
//! not know.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Those of `listed` that this process has not started.
pub fn others(listed: &[u32]) -> Vec<u32> {
    // Mostly there is nobody, and nothing to look up.
    if listed.is_empty() { Vec::new() } else { without(listed, &children(Path::new("/proc"), std::process::id())) }
}

/// `listed` without `own`. Where not one of them is listed by its number, the numbers are those of another name space:
/// then as many are left out, whichever they are.
fn without(listed: &[u32], own: &BTreeSet<u32>) -> Vec<u32> {
    let others: Vec<u32> = listed.iter().copied().filter(|pid| !own.contains(pid)).collect();
    let is_foreign_space = others.len() == listed.len();
    others.into_iter().skip(if is_foreign_space { own.len() } else { 0 }).collect()
}

/// Processes whose parent is `parent`, below the folder `proc`.
fn children(proc: &Path, parent: u32) -> BTreeSet<u32> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let is_child = |pid: &u32| {
        // The name in the middle may hold anything, a `)` among it; state and parent follow it.
        let stat = fs::read_to_string(proc.join(pid.to_string()).join("stat")).unwrap_or_default();
        let mut behind = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        behind.nth(1).and_then(|text| text.parse().ok()) == Some(parent)
    };
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_processes_are_left_out_by_number_where_numbers_are_known() {
        let own = BTreeSet::from([10, 11]);
        assert_eq!(without(&[10, 99], &own), [99]);
        assert_eq!(without(&[10], &own), Vec::<u32>::new());
        assert_eq!(without(&[99], &BTreeSet::new()), [99]);
    }

    #[test]
    fn and_by_count_where_they_are_not() {
        assert_eq!(without(&[70_001], &BTreeSet::from([10])), Vec::<u32>::new());
        assert_eq!(without(&[70_001, 70_002], &BTreeSet::from([10])), [70_002]);
    }

    #[test]
    fn children_are_told_by_their_parent() {
        let proc = tempfile::tempdir().expect("a folder");
        for (pid, stat) in [(10, "10 (mlarun) S 7 7"), (11, "11 (a) S 7) S 8 7"), (12, "12 (b) Z 7 7")] {
            fs::create_dir(proc.path().join(pid.to_string())).expect("a folder");
            fs::write(proc.path().join(pid.to_string()).join("stat"), stat).expect("a file");
        }
        assert_eq!(children(proc.path(), 7), BTreeSet::from([10, 12]));
    }
}
