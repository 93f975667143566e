use serde::{Deserialize, Serialize};

/// Key of one number of `sreport`: `account` and `user` (both empty for the whole cluster), `resource` (`cpu` or
/// `gres/gpu`), and `part` (`used`, `allocated`, `down`, …).
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named above")]
pub struct SreportKey {
    pub account: String,
    pub user: String,
    pub resource: String,
    pub part: String,
}
