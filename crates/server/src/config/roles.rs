//! Serializes roles in lower case (`roles = ["read"]`), like every value in a settings file. On the wire they are in upper case.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidegate_api::Role;

const NAMES: [(&str, Role); 5] = [
    ("read", Role::Read),
    ("submit", Role::Submit),
    ("work", Role::Work),
    ("shop", Role::Shop),
    ("admin", Role::Admin),
];

pub(super) fn serialize<S: Serializer>(roles: &[Role], serializer: S) -> Result<S::Ok, S::Error> {
    let name = |role: &Role| {
        NAMES
            .iter()
            .find(|(_, known)| known == role)
            .map(|(name, _)| *name)
    };
    roles
        .iter()
        .filter_map(name)
        .collect::<Vec<_>>()
        .serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Role>, D::Error> {
    let role = |given: String| {
        let known = NAMES
            .iter()
            .find(|(name, _)| *name == given)
            .map(|(_, role)| *role);
        known.ok_or_else(|| D::Error::unknown_variant(&given, &["read", "submit", "work", "shop", "admin"]))
    };
    Vec::<String>::deserialize(deserializer)?
        .into_iter()
        .map(role)
        .collect()
}
