//! The functions: one file per transition, joined with the shared functions into one library.
//!
//! The name of the library ends in a hash of its text, so that versions do not conflict.

use std::sync::LazyLock;

use crate::partition::murmur2;

#[derive(Debug)]
pub(super) struct Library {
    pub(super) name: String,
    pub(super) text: String,
}

/// Rejected as a whole on a server that may not write.
const WRITES: &str = "";
/// Allowed on a server that may not write.
const READS: &str = "'no-writes'";
/// Allowed on a server that is out of memory.
const FREES: &str = "'allow-oom'";

macro_rules! lua {
    ($name:literal) => {
        ($name, include_str!(concat!("lua/", $name, ".lua")))
    };
}

const FUNCTIONS: [((&str, &str), &str); 11] = [
    (lua!("append"), WRITES),
    (lua!("adopt"), WRITES),
    (lua!("own"), WRITES),
    (lua!("renew"), WRITES),
    (lua!("fetch"), READS),
    (lua!("release"), FREES),
    (lua!("commit"), WRITES),
    (lua!("attend"), WRITES),
    (lua!("lag"), READS),
    (lua!("sweep"), FREES),
    (lua!("layout"), WRITES),
];

pub(super) static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let name = format!("tidegate_log_{:08x}", murmur2(body("").as_bytes()));
    Library {
        text: format!("#!lua name={name}\n{}", body(&name)),
        name,
    }
});

fn body(library: &str) -> String {
    let mut text = lua!("base").1.to_owned();
    for ((name, code), flags) in FUNCTIONS {
        text += &format!(
            "redis.register_function{{ function_name = '{library}_{name}', flags = {{ {flags} }}, \
             callback = function(KEYS, ARGV)\n{code}end }}\n"
        );
    }
    text
}
