//! The person who runs a command.

/// Returns the name of the user who runs the command.
pub fn user_name() -> String {
    let id = rustix::process::getuid().as_raw();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let known = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id.to_string()).then(|| name.to_owned())
    });
    // Users of a directory service are not in /etc/passwd.
    known
        .or_else(|| std::env::var("USER").ok())
        .unwrap_or_else(|| id.to_string())
}

/// Returns the user who runs the command; under `sudo`, the user who called it.
pub fn operator() -> String {
    std::env::var("SUDO_USER")
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(user_name)
}
