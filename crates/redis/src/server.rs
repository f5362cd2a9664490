//! One Redis server: connects on demand and reconnects when the connection breaks.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, RedisError};
use tokio::sync::Mutex;

use crate::Error;

/// Longest wait for a connection and for a reply.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The oldest server version that can reject a script as a whole.
const OLDEST_VERSION: u32 = 7;

/// A connection with what the handshake learnt.
#[derive(Debug, Clone)]
pub struct Live {
    pub connection: MultiplexedConnection,
    /// Changes whenever the server restarts.
    pub run_id: String,
    pub cluster: bool,
    number: u64,
}

#[derive(Debug)]
pub struct Server {
    pub client: Client,
    /// Without user and password, for messages.
    pub name: String,
    /// The function library that every new connection ensures.
    library: Arc<str>,
    live: Mutex<(u64, Option<Live>)>,
}

/// Why there is no connection: retryable or not.
#[derive(Debug)]
pub enum Broken {
    Now(RedisError),
    ForGood(Error),
}

impl Server {
    pub fn new(info: ConnectionInfo, library: Arc<str>) -> Result<Self, Error> {
        let name = info.addr().to_string();
        let client = Client::open(info).map_err(|error| Error::Unsuitable {
            server: format!("Redis at {name}"),
            reason: error.to_string(),
        })?;
        Ok(Self {
            client,
            name: format!("Redis at {name}"),
            library,
            live: Mutex::new((0, None)),
        })
    }

    fn unsuitable(&self, reason: impl Into<String>) -> Error {
        Error::Unsuitable {
            server: self.name.clone(),
            reason: reason.into(),
        }
    }

    pub async fn live(&self) -> Result<Live, Broken> {
        let mut guard = self.live.lock().await;
        if let Some(live) = &guard.1 {
            return Ok(live.clone());
        }
        guard.0 += 1;
        let live = self.connect(guard.0).await?;
        guard.1 = Some(live.clone());
        Ok(live)
    }

    /// Discards a broken connection; the next call creates a new one.
    pub async fn forget(&self, live: &Live) {
        let mut guard = self.live.lock().await;
        if guard.0 == live.number {
            guard.1 = None;
        }
    }

    async fn connect(&self, number: u64) -> Result<Live, Broken> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
        let refused = |error: RedisError| match error.kind() {
            redis::ErrorKind::AuthenticationFailed | redis::ErrorKind::InvalidClientConfig => {
                Broken::ForGood(self.unsuitable(error.to_string()))
            }
            _ if matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM")) => {
                Broken::ForGood(self.unsuitable(error.to_string()))
            }
            _ => Broken::Now(error),
        };
        let mut connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(refused)?;
        let info: String = redis::cmd("INFO")
            .arg("server")
            .query_async(&mut connection)
            .await
            .map_err(refused)?;
        let field = |name: &str| {
            info.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let version = field("redis_version");
        let major = version
            .split('.')
            .next()
            .and_then(|text| text.parse::<u32>().ok());
        if major.is_none_or(|major| major < OLDEST_VERSION) {
            return Err(Broken::ForGood(self.unsuitable(format!(
                "it has version {version:?}; Redis {OLDEST_VERSION} or later is needed"
            ))));
        }
        let load = redis::cmd("FUNCTION")
            .arg("LOAD")
            .arg(&*self.library)
            .query_async::<()>(&mut connection)
            .await;
        if let Err(error) = load
            && !error.to_string().contains("already exists")
        {
            return Err(refused(error));
        }
        Ok(Live {
            connection,
            run_id: field("run_id"),
            cluster: field("redis_mode") == "cluster",
            number,
        })
    }
}
