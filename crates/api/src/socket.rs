//! The Unix socket of the server: its path, and the servers that a command trusts there.

use rustix::net::sockopt;
use rustix::process;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Path of the installed server's socket. Only root and the server may write to its folder.
pub const SOCKET_FILE: &str = "/run/takt/takt.sock";

/// Returns the path of the socket: the configured one, or that of the installed server if this process may write there.
/// `None` if there is no socket.
pub fn socket_path(configured: Option<&Path>) -> Option<PathBuf> {
    if let Some(path) = configured {
        return Some(path.to_owned()).filter(|path| !path.as_os_str().is_empty());
    }
    let path = Path::new(SOCKET_FILE);
    let folder = fs::metadata(path.parent()?).ok()?;
    // A folder of root is not ours, even if root runs this server by hand.
    let own = process::geteuid().as_raw();
    (folder.uid() == own && own != 0).then(|| path.to_owned())
}

/// Listens on a Unix socket that every user may connect to. Replaces the socket of a server that has ended.
///
/// # Errors
/// If another server listens there, or the path cannot be used.
pub fn listen_on_socket(path: &Path) -> io::Result<UnixListener> {
    // A socket outlives its server, so only a connection shows whether the server still runs.
    if UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    match fs::symlink_metadata(path) {
        // Only a socket is removed: a mistyped path must not cost a file.
        Ok(found) if is_socket(&found) => fs::remove_file(path)?,
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => {}
    }

    let listener = UnixListener::bind(path)?;
    // Everyone may connect, whatever the umask is; the kernel says who the client is.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns whether a server listens on the socket whose user is root, this user, or the owner of the socket's folder: others
/// could pretend to be the server.
pub fn is_trusted_socket(path: &Path) -> bool {
    let server = UnixStream::connect(path)
        .ok()
        .and_then(|socket| sockopt::socket_peercred(socket).ok());
    let folder = path.parent().and_then(|folder| fs::metadata(folder).ok());
    let (Some(server), Some(folder)) = (server, folder) else {
        return false;
    };

    let server = server.uid.as_raw();
    let own = process::geteuid().as_raw();
    // In a folder that others may write to, its owner did not necessarily create the socket.
    let is_shared = folder.mode() & 0o022 != 0;
    server == 0 || server == own || (server == folder.uid() && !is_shared)
}

fn is_socket(found: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    found.file_type().is_socket()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::tempdir;

    #[test]
    fn a_socket_is_for_everybody_and_replaces_an_old_one_only() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("takt.sock");
        let first = listen_on_socket(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o666);
        assert!(is_trusted_socket(&path));

        listen_on_socket(&path).unwrap_err();
        drop(first);
        assert!(!is_trusted_socket(&path), "nobody listens");
        drop(listen_on_socket(&path).unwrap());

        let file = folder.path().join("file");
        fs::write(&file, "data").unwrap();
        listen_on_socket(&file).unwrap_err();
        assert_eq!(fs::read(&file).unwrap(), b"data");
    }
}
