//! The caller of a request: a key, a browser's session, or anybody if no keys are configured.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tidegate_api::Role;
use tidegate_core::ids::GroupId;

use crate::problem::{ApiError, FORBIDDEN, UNAUTHORIZED};

/// The name of every caller if no keys are configured.
pub(crate) const ANYBODY: &str = "anybody";

/// The guard adds it to every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The key's name, for the audit log.
    pub(crate) name: String,
    pub(crate) roles: Vec<Role>,
    /// The groups that the caller may access; all if empty. A `*` at the end matches any suffix.
    pub(crate) groups: Vec<String>,
}

impl Caller {
    /// The caller of every request if no keys are configured.
    pub(crate) fn anybody() -> Self {
        Self {
            name: ANYBODY.into(),
            roles: vec![Role::Read, Role::Submit, Role::Work, Role::Shop, Role::Admin],
            groups: Vec::new(),
        }
    }

    pub(crate) fn has(&self, role: Role) -> bool {
        self.roles.contains(&role) || self.roles.contains(&Role::Admin)
    }

    pub(crate) fn sees(&self, group: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => group.starts_with(start),
            None => group == pattern,
        };
        self.groups.is_empty() || self.groups.iter().any(matches)
    }

    pub(crate) fn need(&self, role: Role) -> Result<(), ApiError> {
        if self.has(role) {
            return Ok(());
        }
        let (role, name) = (format!("{role:?}").to_lowercase(), &self.name);
        Err(ApiError::new(
            FORBIDDEN,
            format!("key {name:?} does not have the role {role}"),
        ))
    }

    /// Requires the role for one group.
    pub(crate) fn need_for(&self, role: Role, group: &GroupId) -> Result<(), ApiError> {
        self.need(role)?;
        if self.sees(group.as_str()) {
            return Ok(());
        }
        let name = &self.name;
        Err(ApiError::new(
            FORBIDDEN,
            format!("key {name:?} has no access to group {group:?}"),
        ))
    }

    /// Requires the role for all groups.
    pub(crate) fn need_for_all(&self, role: Role) -> Result<(), ApiError> {
        self.need(role)?;
        if self.groups.is_empty() {
            return Ok(());
        }
        let name = &self.name;
        Err(ApiError::new(
            FORBIDDEN,
            format!("key {name:?} has access to some groups only; this request needs access to all"),
        ))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or_else(|| {
            let detail = "the request has no key; send one as `Authorization: Bearer <key>`";
            ApiError::new(UNAUTHORIZED, detail)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_for_some_groups_has_access_to_those_only() {
        let caller = Caller {
            name: "shop".into(),
            roles: vec![Role::Read],
            groups: vec!["shop-*".into(), "other".into()],
        };
        let group = |name| GroupId::new(name).unwrap();
        assert!(caller.need_for(Role::Read, &group("shop-1")).is_ok());
        assert!(caller.need_for(Role::Read, &group("other")).is_ok());
        assert!(caller.need_for(Role::Read, &group("others")).is_err());
        assert!(caller.need_for(Role::Submit, &group("shop-1")).is_err());
        assert!(caller.need_for_all(Role::Read).is_err());
    }
}
