//! Starts real servers for experiments, as tests do, and prints their addresses. It ends with its input.
//!
//! ```console
//! $ cargo run -p tidegate-testkit --example servers
//! redis    redis://127.0.0.1:…
//! kafka    127.0.0.1:…
//! postgres postgres://…
//! mariadb  mysql://…
//! ```

use std::io::{self, Read};

use tidegate_testkit::servers::{
    KafkaOptions, KafkaServer, MariaDbServer, PostgresServer, RedisOptions, RedisServer, SqlOptions,
};

fn main() -> io::Result<()> {
    let redis = RedisServer::start(RedisOptions::durable())?;
    println!("redis    {}", redis.url());
    let kafka = KafkaServer::start(KafkaOptions::default())?;
    println!("kafka    {}", kafka.brokers());
    let postgres = PostgresServer::start(SqlOptions::default())?;
    println!("postgres {}", postgres.create_database("tidegate")?);
    let mariadb = MariaDbServer::start(SqlOptions::default())?;
    println!("mariadb  {}", mariadb.create_database("tidegate")?);
    println!("They end when this program does: press Ctrl+D.");
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
