//! Leaves out of answers what a viewer may not see.

use std::collections::{BTreeMap, BTreeSet};
use takt_access::{OTHER_ACCOUNT, OTHER_USER, Owner, Privacy, Role, Viewer};
use takt_accounting::Accounts;
use takt_accounting::fairshare::{Explanation, ShareRow};
use takt_accounting::sheet::{Books, Figures, Sheet, Subject};
use takt_jobs::{HeldRun, JobRun, Owner as ReservationOwner};
use takt_model::UnixTime;
use takt_store::{FairsharePoint, Records, StoreError, VisibleRuns};

/// A sum over fewer users gives them away, so it is not shown by itself.
const MIN_USERS: usize = 3;

/// The runs that a viewer sees. `None` without a restriction.
pub(super) fn visible_runs(viewer: &Viewer) -> Option<VisibleRuns> {
    // With open privacy, and with private usage, runs themselves are visible.
    let is_restricted = viewer.privacy() == Privacy::Private && !viewer.sees_all();
    is_restricted.then(|| own_runs(viewer))
}

/// The viewer's own runs, and those of coordinated accounts.
pub(super) fn own_runs(viewer: &Viewer) -> VisibleRuns {
    VisibleRuns {
        user: viewer.user().map(str::to_owned),
        accounts: viewer.accounts().iter().cloned().collect(),
    }
}

/// Removes the name and the exit code of another user's run.
pub(super) fn hide_details(viewer: &Viewer, run: &mut JobRun) {
    if !viewer.sees_details(Owner::new(&run.user, &run.account)) {
        run.name = None;
        run.exit_code = None;
    }
}

/// Names of users and accounts in sums.
pub(super) struct ShownNames<'v> {
    viewer: &'v Viewer,
    /// Accounts of the viewer's own runs.
    members: BTreeSet<String>,
    /// Users of each account with usage in the period. Empty if the viewer sees all users.
    users: BTreeMap<String, BTreeSet<String>>,
}

impl<'v> ShownNames<'v> {
    /// Reads which accounts are large enough to be shown in a period.
    pub(super) fn read(
        viewer: &'v Viewer,
        records: &Records<'_>,
        cluster: &str,
        from: UnixTime,
        to: UnixTime,
    ) -> Result<Self, StoreError> {
        let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        // All runs of the period are read only if users are hidden from the viewer.
        let sees_users = viewer.sees_all() || viewer.privacy() == Privacy::Open;
        if !sees_users {
            records.held_runs(cluster, from, to, |run| {
                let of_account = match users.get_mut(run.account) {
                    Some(of_account) => of_account,
                    None => users.entry(run.account.to_owned()).or_default(),
                };
                // Three names are enough to know that an account is large; more of them cost memory.
                if of_account.len() < MIN_USERS && !of_account.contains(run.user) {
                    of_account.insert(run.user.to_owned());
                }
            })?;
        }
        Ok(Self {
            viewer,
            members: own_accounts(viewer, records, cluster)?,
            users,
        })
    }

    /// Returns the run under the names that the viewer sees.
    pub(super) fn run<'r>(&self, run: &HeldRun<'r>) -> HeldRun<'r> {
        let owner = Owner::new(run.user, run.account);
        if self.viewer.sees_usage(owner) {
            return *run;
        }
        // A small account's sum would be its user's usage.
        let account = if self.shows_account(run.account) {
            run.account
        } else {
            OTHER_ACCOUNT
        };
        HeldRun {
            user: OTHER_USER,
            account,
            ..*run
        }
    }

    fn shows_account(&self, account: &str) -> bool {
        let is_large = self
            .users
            .get(account)
            .is_some_and(|users| users.len() >= MIN_USERS);
        is_large && self.viewer.sees_account(account, &self.members)
    }
}

/// Accounts of which a viewer sees the sums and nothing else.
pub(super) struct ShownSums<'s> {
    viewer: &'s Viewer,
    /// Accounts of the viewer's own runs.
    members: BTreeSet<String>,
    books: &'s Books<'s>,
    tree: &'s Accounts,
}

impl<'s> ShownSums<'s> {
    /// Reads the viewer's accounts. The last period of `books` decides which accounts are large enough.
    pub(super) fn read(
        viewer: &'s Viewer,
        records: &Records<'_>,
        cluster: &str,
        books: &'s Books<'s>,
        tree: &'s Accounts,
    ) -> Result<Self, StoreError> {
        let members = own_accounts(viewer, records, cluster)?;
        Ok(Self {
            viewer,
            members,
            books,
            tree,
        })
    }

    /// Returns whether the viewer sees the report of a subject as sums.
    pub(super) fn has(&self, subject: &Subject) -> bool {
        let Subject::Account(above) = subject else {
            return false;
        };
        // The accounts below count, as the report of the account has their usage.
        self.shows(|account| self.tree.is_within(account, above))
    }

    /// Returns whether these accounts together have enough users, and the viewer sees each of them.
    fn shows(&self, is_one: impl Fn(&str) -> bool) -> bool {
        let mut users = BTreeSet::new();
        for (user, account, entry) in self.books.members() {
            // A user without usage in the period does not make an account larger.
            let is_used = entry.periods.last().is_some_and(|tally| {
                tally.cpu_seconds > 0.0 || tally.gpu_seconds > 0.0 || tally.jobs_started > 0
            });
            if !is_used || !is_one(account) {
                continue;
            }
            // One hidden account below would be part of the sum.
            if !self.viewer.sees_account(account, &self.members) {
                return false;
            }
            users.insert(user);
        }

        self.viewer.role() >= Role::User && users.len() >= MIN_USERS
    }
}

/// Keeps the sums of what was allocated. Measurements are the users' own.
fn sums(figures: &Figures) -> Figures {
    Figures {
        period: figures.period.clone(),
        is_partial: figures.is_partial,
        jobs_started: figures.jobs_started,
        jobs_ended: figures.jobs_ended,
        jobs_failed: figures.jobs_failed,
        jobs_gpu_unknown: figures.jobs_gpu_unknown,
        gpu_hours: figures.gpu_hours,
        cpu_hours: figures.cpu_hours,
        mem_gib_hours: figures.mem_gib_hours,
        ..Figures::default()
    }
}

/// Removes from the report of an account everything but its sums: a day, a model or a wait may be one user's.
fn keep_sums(sheet: &mut Sheet) {
    sheet.figures = sums(&sheet.figures);
    sheet.currency = None;
    sheet.before.clear();
    sheet.days.clear();
    sheet.gpu_models.clear();
    sheet.waiting = None;
    sheet.fixes.clear();

    let note = "Who used the account, when and how well is shown to its coordinators.";
    sheet.notes.push(note.to_owned());
}

/// Accounts of the viewer's own runs.
fn own_accounts(
    viewer: &Viewer,
    records: &Records<'_>,
    cluster: &str,
) -> Result<BTreeSet<String>, StoreError> {
    match viewer.user() {
        Some(user) => Ok(records.accounts_of(cluster, user)?.into_iter().collect()),
        None => Ok(BTreeSet::new()),
    }
}

/// The users that the viewer may know, for the proposals in errors.
pub(super) fn known_users(viewer: &Viewer, mut users: Vec<String>) -> Vec<String> {
    users.retain(|user| viewer.sees_usage(Owner::new(user, "")));
    users
}

/// The accounts that the viewer may know, for the proposals in errors.
pub(super) fn known_accounts(viewer: &Viewer, mut accounts: Vec<String>) -> Vec<String> {
    accounts.retain(|account| sees_subject(viewer, &Subject::Account(account.clone())));
    accounts
}

/// Whether the viewer sees the report of a subject. The report of the cluster is reduced by [`reduce_sheet`].
pub(super) fn sees_subject(viewer: &Viewer, subject: &Subject) -> bool {
    match subject {
        Subject::User(user) => viewer.sees_usage(Owner::new(user, "")),
        Subject::Account(account) => viewer.sees_usage(Owner::new("", account)),
        Subject::Cluster => true,
    }
}

/// Returns what an error about a subject without runs says: whether there are none, or none that the viewer may see. It
/// depends on the viewer's rights alone, so that a hidden subject is as unknown as one that does not exist.
pub(super) fn no_run_of(viewer: &Viewer, subject: &Subject, period: &str) -> String {
    let kind = subject.kind();
    let name = subject.name();
    if sees_subject(viewer, subject) {
        return format!("no run of the {kind} {name} is recorded{period}");
    }
    let part = match subject {
        Subject::Account(_) => "of an account you may see only your own part",
        _ if viewer.accounts().is_empty() => "you may see only your own runs",
        _ => "you may see only your own runs, and those of the accounts that you coordinate",
    };
    format!("no run of the {kind} {name} that you may see is recorded{period}: {part}")
}

/// Removes from a report what the viewer may not see of other users.
pub(super) fn reduce_sheet(viewer: &Viewer, shown: &ShownSums<'_>, sheet: &mut Sheet) {
    let is_whole = match &sheet.subject {
        Subject::User(user) => viewer.is_user(user),
        Subject::Account(account) => viewer.accounts().contains(account),
        Subject::Cluster => false,
    };
    // The own report is whole, except the names of others in its ranking.
    if is_whole {
        hide_ranks(viewer, sheet);
    }
    if is_whole || viewer.sees_all() {
        return;
    }

    hide_ranks(viewer, sheet);
    let sees = |user: &str, account: &str| viewer.sees_measurements(Owner::new(user, account));
    let sees_name = |user: &str, account: &str| viewer.sees_details(Owner::new(user, account));

    sheet.runs.retain(|run| sees(&run.user, &run.account));
    for run in &mut sheet.runs {
        run.name = run
            .name
            .take()
            .filter(|_| sees_name(&run.user, &run.account));
    }
    sheet.fixes.retain(|fix| sees_name(&fix.user, ""));
    sheet.network_bound.retain(|row| sees(&row.user, ""));
    sheet.lost.retain(|row| sees(&row.user, ""));
    sheet.breaches.retain(|row| sees(&row.user, &row.account));
    sheet.budgets.retain(|budget| {
        let owner = if budget.is_account {
            Owner::new("", &budget.name)
        } else {
            Owner::new(&budget.name, "")
        };
        viewer.sees_usage(owner)
    });
    let of_account = matches!(sheet.subject, Subject::User(_));
    let listed = sheet.members.len() + sheet.accounts.len();
    sheet
        .members
        .retain(|member| of_account || viewer.sees_usage(Owner::new(&member.name, "")));

    sheet.accounts.retain_mut(|account| {
        if viewer.sees_usage(Owner::new("", &account.name)) {
            return true;
        }
        // Sums only: a wait of the account may be that of one user.
        account.figures = sums(&account.figures);
        account.wait_mean_hours = None;
        shown.shows(|name| name == account.name)
    });
    // A list that is shorter than its sum needs a word.
    if sheet.members.len() + sheet.accounts.len() < listed {
        let note = "Other users and accounts count in the sums and are not listed.";
        sheet.notes.push(note.to_owned());
    }
    if !sees_subject(viewer, &sheet.subject) {
        keep_sums(sheet);
    }
}

/// Removes from the report of a coordinated account's member what sums over all accounts.
pub(super) fn reduce_member_sheet(sheet: &mut Sheet) {
    sheet.rank = None;
    sheet.share = None;
    sheet.budgets.clear();
    let note = "This report has the jobs in the accounts that you coordinate.";
    sheet.notes.push(note.to_owned());
}

/// Removes the names of others from the ranking.
fn hide_ranks(viewer: &Viewer, sheet: &mut Sheet) {
    for row in sheet
        .rank
        .iter_mut()
        .flat_map(|rank| &mut rank.rows)
        .filter(|row| !row.is_self)
    {
        let name = row.name.take();
        row.name = name.filter(|name| viewer.sees_usage(Owner::new(name, "")));
    }
}

/// Removes the names of others from the fair-share table.
pub(super) fn hide_share_rows(viewer: &Viewer, branch: &BTreeSet<String>, rows: &mut [ShareRow]) {
    for row in rows {
        let user = row.user.as_deref().unwrap_or_default();
        if viewer.sees_usage(Owner::new(user, &row.account)) {
            continue;
        }
        // The row stays, since shares mean something among siblings only.
        row.user = row.user.take().map(|_| OTHER_USER.to_owned());
        if !viewer.sees_account(&row.account, branch) {
            row.account = OTHER_ACCOUNT.to_owned();
        }
    }
}

/// Keeps the points that the viewer may see.
pub(super) fn visible_points(viewer: &Viewer, points: &mut Vec<FairsharePoint>) {
    points.retain(|point| {
        let user = point.user.as_deref().unwrap_or_default();
        viewer.sees_usage(Owner::new(user, &point.account))
    });
}

/// Removes the name of the user one place above from an explanation.
pub(super) fn hide_neighbour(viewer: &Viewer, explanation: &mut Explanation) {
    let Some(above) = &mut explanation.above else {
        return;
    };
    // The place above is a number; only its name is hidden.
    if viewer.sees_usage(Owner::new(&above.user, &above.account)) {
        return;
    }
    above.user = OTHER_USER.to_owned();
    above.account = OTHER_ACCOUNT.to_owned();
    above.theirs.name = if above.theirs.is_user {
        OTHER_USER.to_owned()
    } else {
        OTHER_ACCOUNT.to_owned()
    };
}

/// The owner of a reservation under the names that the viewer sees.
pub(super) fn shown_owner(viewer: &Viewer, owner: ReservationOwner) -> ReservationOwner {
    let user = owner.user.as_deref().unwrap_or_default();
    if viewer.sees_usage(Owner::new(user, &owner.account)) {
        return owner;
    }
    let is_shown = viewer.privacy() < Privacy::Private;
    ReservationOwner {
        user: owner.user.map(|_| OTHER_USER.to_owned()),
        account: if is_shown {
            owner.account
        } else {
            OTHER_ACCOUNT.to_owned()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_access::Way;

    fn alice(privacy: Privacy) -> Viewer {
        Viewer::new(Role::User, Way::Socket, privacy).with_user("alice")
    }

    fn names<'v>(viewer: &'v Viewer, users: &[(&str, &[&str])]) -> ShownNames<'v> {
        let owned = |users: &[&str]| users.iter().map(|user| (*user).to_owned()).collect();
        ShownNames {
            viewer,
            members: BTreeSet::from(["physics".to_owned()]),
            users: users
                .iter()
                .map(|(account, users)| ((*account).to_owned(), owned(users)))
                .collect(),
        }
    }

    fn shown<'r>(names: &ShownNames<'_>, user: &'r str, account: &'r str) -> (&'r str, &'r str) {
        let run = names.run(&HeldRun {
            user,
            account,
            ..HeldRun::default()
        });
        (run.user, run.account)
    }

    #[test]
    fn who_sees_only_an_own_part_is_told_so_whether_or_not_others_have_runs() {
        let account = Subject::Account("lab-a".into());
        let ann = Viewer::new(Role::User, Way::Session, Privacy::Private);
        assert_eq!(
            no_run_of(&ann.clone().with_user("ann"), &account, ""),
            "no run of the account lab-a that you may see is recorded: \
             of an account you may see only your own part"
        );
        assert_eq!(
            no_run_of(
                &ann.with_user("ann"),
                &Subject::User("ann".into()),
                " in 2026-10"
            ),
            "no run of the user ann is recorded in 2026-10"
        );
        assert_eq!(
            no_run_of(&Viewer::server(), &account, ""),
            "no run of the account lab-a is recorded"
        );
    }

    #[test]
    fn sums_keep_their_size_and_lose_names() {
        // Two accounts of three users, and one of a single user. Alice is a member of physics.
        let sizes: &[(&str, &[&str])] = &[
            ("physics", &["alice", "bob", "carol"]),
            ("biology", &["dan", "eve", "frank"]),
            ("art", &["grace"]),
        ];

        let open = alice(Privacy::Open);
        assert_eq!(
            shown(&names(&open, sizes), "dan", "biology"),
            ("dan", "biology")
        );
        // Usage is private: accounts of enough users are named.
        let usage = alice(Privacy::Usage);
        let usage = names(&usage, sizes);
        assert_eq!(shown(&usage, "alice", "art"), ("alice", "art"));
        assert_eq!(shown(&usage, "dan", "biology"), (OTHER_USER, "biology"));
        assert_eq!(shown(&usage, "grace", "art"), (OTHER_USER, OTHER_ACCOUNT));
        // Everything is private: only the viewer's own account is named.
        let private = alice(Privacy::Private);
        let private = names(&private, sizes);
        assert_eq!(shown(&private, "bob", "physics"), (OTHER_USER, "physics"));
        assert_eq!(
            shown(&private, "dan", "biology"),
            (OTHER_USER, OTHER_ACCOUNT)
        );
        // A coordinator sees the users of the account.
        let head = alice(Privacy::Private).with_accounts(BTreeSet::from(["biology".to_owned()]));
        assert_eq!(
            shown(&names(&head, sizes), "dan", "biology"),
            ("dan", "biology")
        );
    }

    #[test]
    fn details_of_others_are_removed() {
        let run = |user: &str| JobRun {
            user: user.to_owned(),
            name: Some("secret".to_owned()),
            exit_code: Some("1:0".to_owned()),
            ..JobRun::default()
        };

        let hidden = |viewer: &Viewer, user| {
            let mut run = run(user);
            hide_details(viewer, &mut run);
            run.name.is_none() && run.exit_code.is_none()
        };
        assert!(hidden(&alice(Privacy::Open), "bob"));
        assert!(!hidden(&alice(Privacy::Private), "alice"));
        assert!(!hidden(&Viewer::server(), "bob"));
    }
}
