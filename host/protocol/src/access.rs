//! Who asks a cluster for something, and what they may: people, roles, and the shapes in which tokens are shown.
//!
//! Never holds a token itself: a cluster knows each by its SHA-256 only. Tokens are 256 random bits, so nobody finds one by trying
//! what has a given digest, and a slow hash, which protects what people choose, would only cost time at each request.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What one may ask a cluster. Each role may all that the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// See jobs, workers, components, events and metrics.
    Viewer,
    /// Stop, cancel and rescale jobs.
    Operator,
    /// Submit and remove jobs and components: what runs on the cluster.
    Submitter,
    /// Create and revoke tokens, and adopt the workers of another coordinator.
    Admin,
}

impl Role {
    /// All of them, the least first.
    pub const ALL: [Role; 4] = [Role::Viewer, Role::Operator, Role::Submitter, Role::Admin];
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Submitter => "submitter",
            Role::Admin => "admin",
        })
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        let found = Role::ALL.into_iter().find(|role| role.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is none of viewer, operator, submitter and admin"))
    }
}

/// Who asked for something. In JSON `token:ci` or `user:root`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Person {
    /// Who has the token of this name.
    Token(String),
    /// A user of the coordinator's machine, by name, or by number where it has none.
    User(String),
}

impl fmt::Display for Person {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Person::Token(name) => write!(f, "token {name}"),
            Person::User(name) => write!(f, "user {name}"),
        }
    }
}

impl From<Person> for String {
    fn from(person: Person) -> String {
        match person {
            Person::Token(name) => format!("token:{name}"),
            Person::User(name) => format!("user:{name}"),
        }
    }
}

impl TryFrom<String> for Person {
    type Error = String;

    fn try_from(text: String) -> Result<Person, String> {
        match text.split_once(':') {
            Some(("token", name)) => Ok(Person::Token(name.to_owned())),
            Some(("user", name)) => Ok(Person::User(name.to_owned())),
            _ => Err(format!("`{text}` is neither `token:NAME` nor `user:NAME`")),
        }
    }
}

/// Who asks, and what they may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Who.
    pub person: Person,
    /// What they may.
    pub role: Role,
}

/// A token that is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Its name, which events show: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// What who has it may.
    pub role: Role,
    /// How long it counts, in milliseconds; without, until it is revoked.
    #[serde(default)]
    pub valid_ms: Option<u64>,
}

/// A token, without what is secret of it. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenStatus {
    /// Its name.
    pub name: String,
    /// What who has it may.
    pub role: Role,
    /// When it was made, or first found in the coordinator's token file.
    pub created_at_ms: u64,
    /// Who made it; none of the one in the token file.
    pub created_by: Option<Person>,
    /// When it ends to count; none: never.
    pub expires_at_ms: Option<u64>,
    /// When it was shown last; up to a minute of this is forgotten where the coordinator is killed.
    pub used_at_ms: Option<u64>,
}

/// A token that was made, with its secret: the only time that it is told.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedToken {
    /// The token.
    pub token: TokenStatus,
    /// What a client shows: `Authorization: Bearer <secret>`.
    pub secret: String,
}

/// Without the secret.
impl fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedToken").field("token", &self.token).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_may_what_those_before_it_may() {
        assert!(Role::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{role}\""), "people and programs see the same word");
        }
        assert!("root".parse::<Role>().is_err() && "Admin".parse::<Role>().is_err());
    }

    #[test]
    fn a_person_survives_json_whatever_the_name() {
        for person in [Person::Token("ci".to_owned()), Person::User("a:b \"c\"".to_owned()), Person::User(String::new())] {
            let json = serde_json::to_string(&person).unwrap();
            assert_eq!(serde_json::from_str::<Person>(&json).unwrap(), person, "{json}");
        }
        assert_eq!(serde_json::to_string(&Person::Token("ci".to_owned())).unwrap(), "\"token:ci\"");
        assert!(serde_json::from_str::<Person>("\"ci\"").is_err());
    }
}
