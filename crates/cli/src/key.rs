//! `tidegate key`: creates an API key and its configuration section.

use std::io::Write;

use clap::{Args, ValueEnum};
use tidegate_server::config::{Config, KeyConfig, Role};
use tidegate_server::fresh_key;

#[derive(Debug, Args)]
pub(super) struct KeyArgs {
    /// Name of the key in the audit log
    #[arg(long)]
    name: String,
    /// Role of the key; may be repeated
    #[arg(long = "role", required = true, value_name = "ROLE")]
    roles: Vec<RoleArg>,
    /// Limit the key to this group, or to a prefix that ends with `*`; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// One JSON object: `key`, and `config` with the section
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleArg {
    /// See everything
    Read,
    /// Submit jobs
    Submit,
    /// Lease and settle jobs
    Work,
    /// Redeem passes of waiting rooms
    Shop,
    /// Everything
    Admin,
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::Read => Role::Read,
            RoleArg::Submit => Role::Submit,
            RoleArg::Work => Role::Work,
            RoleArg::Shop => Role::Shop,
            RoleArg::Admin => Role::Admin,
        }
    }
}

pub(super) fn run(args: &KeyArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let fresh = fresh_key()?;
    let mut roles: Vec<Role> = args.roles.iter().map(|role| (*role).into()).collect();
    roles.sort();
    roles.dedup();
    let config = KeyConfig {
        name: args.name.clone(),
        hash: fresh.hash,
        roles,
        groups: args.groups.clone(),
    };
    // Refuse here what the service would refuse at its start.
    let alone = Config {
        keys: vec![config.clone()],
        ..Config::default()
    };
    alone.validate()?;
    if args.json {
        writeln!(out, "{}", serde_json::json!({"key": fresh.key, "config": config}))?;
        return Ok(());
    }
    writeln!(out, "The key, shown only this once:\n\n  {}\n", fresh.key)?;
    writeln!(
        out,
        "For the configuration:\n\n[[keys]]\n{}",
        toml::to_string(&config)?
    )?;
    Ok(())
}
