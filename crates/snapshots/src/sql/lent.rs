//! A connection borrowed from a pool, which gets it back in bounded time.
//!
//! A server that loses power says nothing: a caller waits until the kernel gives up, a quarter of an hour later. A
//! pool pings a connection before it takes it back, without a time limit, and meanwhile blocks its slot. So a
//! connection with a pending response never returns, and this module bounds the ping of every other one.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Database, Executor, Pool};
use tokio::runtime::Handle;

/// Limit: how long a connection may take to end its transaction and to answer a ping. The pool bounds the close.
const RETURN: Duration = Duration::from_secs(5);

pub(crate) struct Lent<DB>
where
    DB: Database,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    /// None: it was returned.
    connection: Option<PoolConnection<DB>>,
    in_transaction: bool,
    /// A request was sent, and nobody received its response: the caller gave up, or the connection broke.
    owes_answer: bool,
}

impl<DB> Lent<DB>
where
    DB: Database,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    pub(crate) async fn from(pool: &Pool<DB>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            connection: Some(pool.acquire().await?),
            in_transaction: false,
            owes_answer: false,
        })
    }

    /// A transaction. Dropping it without [`commit`](Self::commit) rolls it back.
    pub(crate) async fn begin(pool: &Pool<DB>) -> Result<Self, sqlx::Error> {
        let mut lent = Self::from(pool).await?;
        let begun = lent.connection()?.execute("BEGIN").await;
        lent.heard(begun)?;
        lent.in_transaction = true;
        Ok(lent)
    }

    pub(crate) async fn commit(mut self) -> Result<(), sqlx::Error> {
        let committed = self.connection()?.execute("COMMIT").await;
        self.heard(committed)?;
        self.in_transaction = false;
        Ok(())
    }

    /// The connection, for one request; pass its result to [`heard`](Self::heard).
    pub(crate) fn connection(&mut self) -> Result<&mut DB::Connection, sqlx::Error> {
        self.owes_answer = true;
        self.connection.as_deref_mut().ok_or(sqlx::Error::PoolClosed)
    }

    pub(crate) fn heard<T>(&mut self, answer: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        self.owes_answer = !matches!(answer, Ok(_) | Err(sqlx::Error::Database(_)));
        answer
    }
}

impl<DB> Drop for Lent<DB>
where
    DB: Database,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        // Wherever it is dropped below, it is closed without a ping.
        connection.close_on_drop();
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.owes_answer {
            return;
        }
        let in_transaction = self.in_transaction;
        runtime.spawn(async move {
            let back = async {
                if in_transaction && connection.execute("ROLLBACK").await.is_err() {
                    return;
                }
                connection.return_to_pool().await;
            };
            if tokio::time::timeout(RETURN, back).await.is_err() {
                tracing::debug!("a connection to the database went silent and is closed");
            }
        });
    }
}
