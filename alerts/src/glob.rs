//! Files that match a pattern: `rules/*.yml`.

use std::io;
use std::path::{Path, PathBuf};
use takt_model::glob::is_match;

/// The files that match a pattern, sorted. `*` and `?` may occur in any part of the pattern. A
/// pattern without them is that file, whether it exists or not.
///
/// # Errors
/// If a folder cannot be read.
pub fn matching(pattern: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![PathBuf::new()];

    for part in pattern.components() {
        let name = part.as_os_str().to_string_lossy();
        if !name.contains(['*', '?']) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }

        let mut next = Vec::new();
        // Only folders have entries; a file of that name matches nothing below it.
        for folder in found
            .iter()
            .filter(|path| path.as_os_str().is_empty() || path.is_dir())
        {
            let shown = if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            };
            for entry in std::fs::read_dir(shown)? {
                let entry = entry?.file_name();
                if is_match(&name, &entry.to_string_lossy()) {
                    next.push(folder.join(entry));
                }
            }
        }
        // In one order on every file system, since a later file may replace an earlier one.
        next.sort();
        found = next;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::tempdir;

    #[test]
    fn stars_stand_in_any_part() {
        let folder = tempdir().unwrap();
        for name in ["a/x.rules.yml", "a/y.rules.yml", "b/x.rules.yml", "b/c.yml"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let all = ["a/*.rules.yml", "*/x*", "*/?.yml", "a/*x", "c.yml", "z*/*"]
            .map(|pattern| matching(&folder.path().join(pattern)).unwrap().len());
        assert_eq!(all, [2, 2, 1, 0, 1, 0]);
    }
}
