//! What can be read of a configuration with a mistake: where its server is.

use super::{Config, Value};
use serde::Deserialize;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// Returns a configuration with the address, the socket and the data directory of a text that has
/// mistakes elsewhere, and the defaults for all other keys.
///
/// Commands that ask a running server need no more.
pub fn server_part(text: &str, path: &Path) -> Config {
    // A text without valid syntax still has the parts before the mistake.
    let (table, _mistakes) = DeTable::parse_recoverable(text);
    let table = table.into_inner();
    let base = path.parent().unwrap_or(Path::new(""));
    let file = |table: &DeTable<'_>, key: &str| {
        let named = String::deserialize(Value(table.get(key)?)).ok()?;
        Some(base.join(named))
    };

    let mut config = Config {
        data_dir: file(&table, "data_dir"),
        file: Some(path.to_owned()),
        ..Config::default()
    };
    let Some(DeValue::Table(server)) = table.get("server").map(|server| server.get_ref()) else {
        return config;
    };

    config.server.socket_file = file(server, "socket_file");
    let address = server.get("listen_address");
    let address = address.and_then(|address| String::deserialize(Value(address)).ok());
    if let Some(address) = address {
        config.server.listen_address = address;
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_elsewhere_hides_no_server() {
        let path = Path::new("/etc/takt/takt.toml");
        for mistake in [
            "timezone = 5\n",
            "timezome = 'UTC'\n",
            "cluster = \"lab\n",
            "[alerts\n",
            "[scrape]\ninterval_seconds = 'x'\n",
        ] {
            let text = format!(
                "data_dir = 'data'\n{mistake}[server]\nlisten_address = '127.0.0.1:9999'\n\
                 socket_file = 'takt.sock'\n"
            );
            Config::parse(&text, path).unwrap_err();
            let found = server_part(&text, path);
            assert_eq!(found.server.listen_address, "127.0.0.1:9999", "{mistake}");
            let socket = found.server.socket_file.unwrap();
            assert_eq!(socket, Path::new("/etc/takt/takt.sock"));
            assert_eq!(found.data_dir.unwrap(), Path::new("/etc/takt/data"));
        }
    }
}
