//! Whether the service's user can read a file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The user that the server runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceUser {
    name: String,
    id: u32,
    groups: Vec<u32>,
}

impl ServiceUser {
    /// Returns the user with this id, as the texts of `/etc/passwd` and `/etc/group` describe it.
    /// `None` if they do not.
    pub fn with_id(id: u32, passwd: &str, group: &str) -> Option<Self> {
        let (name, first) = passwd.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, uid, gid, ..] = fields[..] else {
                return None;
            };
            (uid.parse() == Ok(id)).then(|| (name.to_owned(), gid.parse::<u32>().ok()))
        })?;
        // The primary group is in `passwd`, and the others list the user in `group`.
        let further = group.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [_, _, gid, members] = fields[..] else {
                return None;
            };
            let is_member = members.split(',').any(|member| member == name);
            gid.parse().ok().filter(|_| is_member)
        });

        let groups = first.into_iter().chain(further).collect();
        Some(Self { name, id, groups })
    }

    /// Name of the user.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the file, or the folder above it, that the mode bits close to this user. `None` if
    /// the user can read the file, or if the file is missing.
    pub fn closed_path(&self, file: &Path) -> Option<PathBuf> {
        let file = std::fs::canonicalize(file).ok()?;
        // From the root down: the first closed folder is the one to open, as those below cannot be reached.
        let mut above: Vec<&Path> = file.ancestors().skip(1).collect();
        above.reverse();
        above
            .into_iter()
            .find(|folder| !self.has(folder, 0o1))
            .or_else(|| (!self.has(&file, 0o4)).then_some(file.as_path()))
            .map(Path::to_owned)
    }

    /// Returns whether the mode bits give the user this right: 4 to read, 1 to enter a folder.
    fn has(&self, path: &Path, right: u32) -> bool {
        std::fs::metadata(path).is_ok_and(|found| self.is_allowed(&found, right))
    }

    fn is_allowed(&self, found: &Metadata, right: u32) -> bool {
        // As in the kernel, the first class that fits decides, even if a later one would allow more.
        let right = if found.uid() == self.id {
            right << 6
        } else if self.groups.contains(&found.gid()) {
            right << 3
        } else {
            right
        };
        // Root may read everything.
        self.id == 0 || found.mode() & right != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use tempfile::tempdir;

    #[test]
    fn the_owner_the_group_and_others_have_their_own_bits() {
        let folder = tempdir().unwrap();
        let set =
            |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();

        set(folder.path(), 0o755);
        let file = folder.path().join("slack-webhook");
        fs::write(&file, "x").unwrap();

        let found = fs::metadata(&file).unwrap();
        let passwd = format!(
            "root:x:0:0::/:/bin/sh\nowner:x:{}:7::/:/bin/sh\ntakt:x:64001:64001::/:/bin/sh\n\
             member:x:64002:64002::/:/bin/sh\n",
            found.uid() + 1
        );
        let group = format!("takt:x:64001:\nsecret:x:{}:other,member\n", found.gid());
        let user = |id| ServiceUser::with_id(id, &passwd, &group).unwrap();

        set(&file, 0o600);
        assert_eq!(
            user(64001).closed_path(&file).as_deref(),
            Some(&*fs::canonicalize(&file).unwrap())
        );

        set(&file, 0o640);
        assert!(user(64001).closed_path(&file).is_some());
        assert_eq!(
            user(64002).closed_path(&file),
            None,
            "a member of the file's group"
        );

        set(&file, 0o604);
        assert!(
            user(64002).closed_path(&file).is_some(),
            "the group's bits decide"
        );
        assert_eq!(user(64001).closed_path(&file), None);

        set(folder.path(), 0o700);
        assert_eq!(
            user(64001).closed_path(&file).as_deref(),
            Some(&*fs::canonicalize(folder.path()).unwrap())
        );

        assert_eq!(user(64001).closed_path(Path::new("/no/such/file")), None);
        assert_eq!(ServiceUser::with_id(64009, &passwd, &group), None);
    }
}
