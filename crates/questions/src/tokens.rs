//! Tokens of programs: list, create, revoke.

use super::{AnswerConfig, AnswerError, Question, RequestForm};
use crate::password::knows_user;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use takt_access::{Need, Role, Viewer, hash, new_token};
use takt_model::UnixTime;
use takt_store::{Database, Records, TokenRecord};

/// Path of the tokens: GET lists them, POST creates and revokes.
const PATH: &str = "/api/takt/v1/tokens";

/// Maximum length of a token's name.
const MAX_NAME_CHARS: usize = 100;

/// Longest validity of a token: a century.
const LONGEST_SECONDS: i64 = 36_525 * 86_400;

/// Asks for the tokens: all for administrators, the own for others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokensQuestion {}

/// Creates a token, or revokes one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenOrder {
    /// Name of the new token, such as the program that will use it.
    pub name: Option<String>,
    /// Role of the new token. Default: `user`.
    pub role: Option<String>,
    /// Unix user on whose behalf the new token asks. Default: the viewer, for the role `user`.
    pub owner: Option<String>,
    /// Seconds for which the new token is valid. Default: until it is revoked.
    pub seconds: Option<i64>,
    /// Number of the token to revoke.
    pub revoke: Option<i64>,
}

/// The token that was created or revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenAnswer {
    /// The token's record.
    #[serde(flatten)]
    pub record: TokenRecord,
    /// The new token. It is shown once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Why the new token may not do what it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

impl Question for TokensQuestion {
    const PATH: &'static str = PATH;
    const NEED: Need = Need::SignedIn;
    type Answer = Vec<TokenRecord>;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        _config: &AnswerConfig,
    ) -> Result<Vec<TokenRecord>, AnswerError> {
        let mut tokens = Records::of(database).tokens()?;
        tokens.retain(|token| is_visible(viewer, token));
        Ok(tokens)
    }
}

impl Question for TokenOrder {
    const PATH: &'static str = PATH;
    const REQUEST: RequestForm = RequestForm::PostJson;
    const NEED: Need = Need::Change(Role::User);
    type Answer = TokenAnswer;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        _config: &AnswerConfig,
    ) -> Result<TokenAnswer, AnswerError> {
        let records = Records::of(database);
        let now = UnixTime::from(Timestamp::now());
        match (&self.name, self.revoke) {
            (Some(name), None) => self.create(viewer, &records, name, now),
            (None, Some(id)) => revoke(viewer, &records, id, now),
            _ => Err(refused(
                "name a token to create, or the number of a token to revoke",
            )),
        }
    }
}

impl TokenOrder {
    fn create(
        &self,
        viewer: &Viewer,
        records: &Records<'_>,
        name: &str,
        now: UnixTime,
    ) -> Result<TokenAnswer, AnswerError> {
        let role = self.role.as_deref().unwrap_or("user");
        let role: Role = role.parse().map_err(AnswerError::usage)?;
        // A program of the role user sees what its owner sees, so it has one.
        let owner = match &self.owner {
            Some(owner) => Some(owner.clone()),
            None if role == Role::User => viewer.user().map(str::to_owned),
            None => None,
        };
        check(viewer, role, owner.as_deref())?;
        // The name is shown in lists and in the audit log.
        if name.trim().is_empty() || name.chars().count() > MAX_NAME_CHARS {
            return Err(refused("a token needs a name of 1 to 100 characters"));
        }
        if self.seconds.is_some_and(|seconds| seconds <= 0) {
            return Err(refused("a token is valid for more than 0 seconds"));
        }
        // An instant beyond the years of dates cannot be stored.
        if self
            .seconds
            .is_some_and(|seconds| seconds > LONGEST_SECONDS)
        {
            let error = "a token is valid for at most a century; leave the duration out for one that does not end";
            return Err(refused(error));
        }

        let token = new_token().map_err(AnswerError::failed)?;

        let creator = viewer.user().unwrap_or(viewer.role_name());
        let record = records.add_token(TokenRecord {
            id: 0,
            hash: hash(&token),
            name: name.trim().to_owned(),
            owner,
            role: role.name().to_owned(),
            created_by: creator.to_owned(),
            created_at: now,
            expires_at: self.seconds.map(|seconds| now + seconds),
            used_at: None,
            revoked_at: None,
        })?;

        viewer.note_act(format!("create {}", words(&record)));
        // A misspelt owner is a warning only: a directory may not know a user yet.
        let stranger = record.owner.as_deref().filter(|owner| !knows_user(owner));
        Ok(TokenAnswer {
            token: Some(token),
            warning: stranger.map(|owner| {
                format!("the server's machine knows no user {owner}; the token sees what belongs to that name only")
            }),
            record,
        })
    }
}

/// Checks that the viewer may create a token of this role for this owner.
fn check(viewer: &Viewer, role: Role, owner: Option<&str>) -> Result<(), AnswerError> {
    // Such a token sees what its owner sees.
    if role == Role::User && owner.is_none() {
        return Err(refused(
            "a token of the role user needs an owner: name one with --user, or another role with --role \
             (such as viewer)",
        ));
    }
    if viewer.role() == Role::Admin {
        return Ok(());
    }

    let is_own = owner.is_some_and(|owner| viewer.is_user(owner));
    if is_own && role == Role::User {
        Ok(())
    } else {
        Err(refused(
            "only an admin creates tokens of other roles and for other users",
        ))
    }
}

fn revoke(
    viewer: &Viewer,
    records: &Records<'_>,
    id: i64,
    now: UnixTime,
) -> Result<TokenAnswer, AnswerError> {
    // A hidden token is as unknown as one that does not exist.
    let mut visible = records
        .tokens()?
        .into_iter()
        .filter(|token| is_visible(viewer, token));
    let unknown = || AnswerError::Input(format!("no valid token has the number {id}"));

    let record = visible.find(|token| token.id == id).ok_or_else(unknown)?;
    // Another request may have revoked it meanwhile.
    if !records.revoke_token(id, now)? {
        return Err(unknown());
    }
    viewer.note_act(format!("revoke {}", words(&record)));

    let revoked_at = Some(now);
    Ok(TokenAnswer {
        record: TokenRecord {
            revoked_at,
            ..record
        },
        token: None,
        warning: None,
    })
}

/// The token as the audit log names it: `token 3 (grafana), role viewer, of ann`.
fn words(token: &TokenRecord) -> String {
    let TokenRecord { id, name, role, .. } = token;
    let owner = token.owner.as_deref();
    let owner = owner.map_or_else(String::new, |owner| format!(", of {owner}"));
    format!("token {id} ({name}), role {role}{owner}")
}

fn is_visible(viewer: &Viewer, token: &TokenRecord) -> bool {
    let is_own = token
        .owner
        .as_deref()
        .is_some_and(|owner| viewer.is_user(owner));
    is_own || viewer.role() == Role::Admin
}

fn refused(why: &str) -> AnswerError {
    AnswerError::Usage(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::database;
    use takt_access::{Privacy, Way};

    fn alice() -> Viewer {
        Viewer::new(Role::User, Way::Socket, Privacy::Open).with_user("alice")
    }

    fn order(
        viewer: &Viewer,
        database: &Database,
        order: TokenOrder,
    ) -> Result<TokenAnswer, String> {
        order
            .answer(viewer, database, &AnswerConfig::default())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn users_have_tokens_of_their_own_only() {
        let (_root, database) = database();

        let named = |name: &str| TokenOrder {
            name: Some(name.to_owned()),
            ..TokenOrder::default()
        };

        let own = order(&alice(), &database, named("notebook")).unwrap();
        assert_eq!(own.record.owner.as_deref(), Some("alice"));
        assert!(takt_access::is_token(&own.token.unwrap()));

        let for_bob = TokenOrder {
            owner: Some("bob".to_owned()),
            ..named("x")
        };
        order(&alice(), &database, for_bob.clone()).unwrap_err();

        let as_admin = TokenOrder {
            role: Some("admin".to_owned()),
            owner: Some("alice".to_owned()),
            ..named("x")
        };
        order(&alice(), &database, as_admin).unwrap_err();

        let of_bob = order(&Viewer::server(), &database, for_bob).unwrap();

        let listed = |viewer: &Viewer| {
            let question = TokensQuestion {};
            question
                .answer(viewer, &database, &AnswerConfig::default())
                .unwrap()
                .len()
        };
        assert_eq!(listed(&alice()), 1);
        assert_eq!(listed(&Viewer::server()), 2);

        let revoke = |id| TokenOrder {
            revoke: Some(id),
            ..TokenOrder::default()
        };

        let hidden = order(&alice(), &database, revoke(of_bob.record.id)).unwrap_err();
        let unknown = order(&alice(), &database, revoke(99)).unwrap_err();
        assert_eq!(hidden.replace('2', "99"), unknown, "hidden equals unknown");

        let noting = alice();
        order(&noting, &database, revoke(own.record.id)).unwrap();
        let act = noting.act().get().unwrap();
        assert_eq!(act, "revoke token 1 (notebook), role user, of alice");
        order(&alice(), &database, revoke(own.record.id)).unwrap_err();
    }

    #[test]
    fn a_program_without_a_user_needs_another_role() {
        let (_root, database) = database();

        let program = TokenOrder {
            name: Some("grafana".to_owned()),
            ..TokenOrder::default()
        };
        order(&Viewer::server(), &database, program.clone()).unwrap_err();

        let viewer = TokenOrder {
            role: Some("viewer".to_owned()),
            seconds: Some(60),
            ..program
        };

        let made = order(&Viewer::server(), &database, viewer).unwrap().record;
        assert_eq!(made.expires_at, Some(made.created_at + 60));
        assert_eq!(made.owner, None);
    }
}
