//! Access that a route needs.

use crate::Role;

/// Access that a request to a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Need {
    /// Nothing: health checks, and the pages that sign in.
    Nothing,
    /// A known viewer. The answer leaves out what the viewer may not see.
    SignedIn,
    /// A viewer who may see the samples and texts of all users: PromQL, SQL.
    Samples,
    /// A role that sees everything of all users, at every level of privacy.
    AllUsers,
    /// At least this role, to read.
    Role(Role),
    /// A sender's token: the request pushes samples.
    Push,
    /// At least this role, because the request changes something. [`Role::User`]: something of the viewer's own.
    Change(Role),
    /// No role, because what the request sends proves itself: the signed link of a message. It changes something, so no
    /// page of another site may send it.
    Signed,
}

impl Need {
    /// Returns the least role that always meets the need. No role meets [`Need::Push`]; it has the
    /// highest.
    pub fn role(self) -> Role {
        match self {
            Self::Push => Role::Admin,
            Self::Nothing | Self::Signed => Role::Anonymous,
            Self::SignedIn => Role::User,
            Self::Samples | Self::AllUsers => Role::Viewer,
            Self::Role(role) | Self::Change(role) => role,
        }
    }

    /// Returns whether the request changes something.
    pub fn is_change(self) -> bool {
        matches!(self, Self::Change(_) | Self::Signed)
    }
}

/// Needs of a route by method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteNeeds {
    /// Need of GET and HEAD.
    pub read: Need,
    /// Need of all other methods.
    pub other: Need,
}

impl RouteNeeds {
    /// A route that only reads, with GET.
    pub const fn get(read: Need) -> Self {
        Self {
            read,
            other: Need::Change(Role::Admin),
        }
    }

    /// A route that reads, with any method: long queries come as forms.
    pub const fn read(read: Need) -> Self {
        Self { read, other: read }
    }

    /// A route that changes something for this role.
    pub const fn change(role: Role) -> Self {
        Self {
            read: Need::Change(role),
            other: Need::Change(role),
        }
    }

    /// A route that reads with GET and changes something with other methods.
    pub const fn get_or_change(read: Need, role: Role) -> Self {
        Self {
            read,
            other: Need::Change(role),
        }
    }

    /// Returns the needs of a path with two routes: the GET of one, the changes of the other.
    pub fn joined(self, other: Self) -> Self {
        // A route without a GET has a change as its `read`: the GET of a joined path is then the other route's.
        let weaker = |a: Need, b: Need| if a.is_change() { b } else { a };
        Self {
            read: weaker(self.read, other.read),
            other: if other.read.is_change() {
                other.other
            } else {
                self.other
            },
        }
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The viewer is unknown.
    #[error(
        "a token is needed: Authorization: Bearer TOKEN (the server's token_file, or read_token_file to ask)"
    )]
    SignIn,
    /// A loopback connection alone changes nothing.
    #[error("this changes something and needs a token: Authorization: Bearer TOKEN")]
    Token,
    /// Only senders push samples.
    #[error("pushing needs the token of a sender: [[push.senders]] in takt.toml")]
    Sender,
    /// The viewer's role is too low.
    #[error("this needs the role {0}")]
    Role(Role),
    /// A page of another site sent the request.
    #[error("the request comes from a page of another site")]
    OtherSite,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_routes_of_a_path_are_joined_in_any_order() {
        let list = RouteNeeds::get(Need::SignedIn);
        let order = RouteNeeds::change(Role::User);
        let both = RouteNeeds::get_or_change(Need::SignedIn, Role::User);
        assert_eq!(list.joined(order), both);
        assert_eq!(order.joined(list), both);
    }
}
