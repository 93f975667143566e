use super::*;

#[test]
fn spans() {
    for (seconds, expected) in [
        (-5, "0 seconds"),
        (59, "59 seconds"),
        (119, "1 minute"),
        (3600, "1 hour"),
        (7265, "2 hours 1 minute"),
        (86_400, "1 day"),
        (7 * 86_400 + 7200, "7 days 2 hours"),
    ] {
        assert_eq!(span(seconds), expected);
    }
}

#[test]
fn level_fs_says_what_it_means() {
    for (level_fs, expected) in [
        (f64::INFINITY, "level FS inf (nothing used)"),
        (2.0, "level FS 2.00 (used 50 % of its share)"),
        (0.8, "level FS 0.80 (used 125 % of its share)"),
        (0.25, "level FS 0.25 (used 4.0 times its share)"),
        (0.0, "level FS 0 (no shares)"),
    ] {
        assert_eq!(in_words(level_fs), expected);
    }
}
