//! Migrations, forward only. A released file is never changed; what a later version adds, the version before ignores.

use crate::{limits, server::Trouble};
use tokio_postgres::{Client, types::Type};

/// Every version's statements, the first one first.
const MIGRATIONS: [&str; 1] = [include_str!("sql/001.sql")];
/// The key of this program's version in the table `meta`.
const VERSION: &str = "version";
/// The key of the oldest version that may still work with the store.
const OLDEST: &str = "oldest";

/// The version of the tables that this program makes.
pub(crate) fn newest() -> i64 {
    MIGRATIONS.len() as i64
}

/// Makes or migrates the tables. Nodes that start at once wait for each other.
pub(crate) async fn migrate(client: &mut Client) -> Result<(), Trouble> {
    if version(client).await? == Some(MIGRATIONS.len() as i64) {
        return Ok(());
    }
    let refused = |message: String| Trouble::Refused {
        state: tokio_postgres::error::SqlState::UNDEFINED_OBJECT,
        message,
        detail: String::new(),
    };
    let transaction = client.transaction().await?;
    let prepare = format!(
        "SET LOCAL lock_timeout = '{}'; SELECT pg_advisory_xact_lock(7809632480); CREATE SCHEMA IF NOT EXISTS toolyard",
        limits::MIGRATION_LOCK
    );
    transaction.batch_execute(&prepare).await.map_err(|error| match Trouble::from(error) {
        Trouble::Refused { message, .. } => refused(format!(
            "the tables cannot be made: {message}. The user needs CREATE on the database, or an administrator runs the first start"
        )),
        trouble => trouble,
    })?;
    let known = version(transaction.client()).await?.unwrap_or(0);
    let mine = MIGRATIONS.len() as i64;
    if known > mine {
        let oldest = meta_number(transaction.client(), OLDEST).await?.unwrap_or(known);
        if oldest > mine {
            return Err(refused(format!(
                "a newer Toolyard has changed the tables (version {known}), and this one knows version {mine}: install the \
                 version of the other nodes here"
            )));
        }
        return Ok(());
    }
    for (number, sql) in MIGRATIONS.iter().enumerate().skip(usize::try_from(known).unwrap_or(0)) {
        transaction.batch_execute(sql).await?;
        tracing::info!(version = number + 1, "the database's tables were migrated");
    }
    let sql = "INSERT INTO toolyard.meta (key, value) VALUES ($1, $2)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    // This version's tables are used by the version before as well, except that there is none before the first.
    let oldest = (mine - 1).max(1);
    for (key, value) in [(VERSION, mine), (OLDEST, oldest)] {
        let value = value.to_string().into_bytes();
        transaction.query_typed(sql, &[(&key, Type::TEXT), (&value, Type::BYTEA)]).await?;
    }
    transaction.query_typed("SELECT toolyard.partitions_1()", &[]).await?;
    transaction.commit().await?;
    Ok(())
}

async fn version(client: &Client) -> Result<Option<i64>, Trouble> {
    let there = client.query_typed("SELECT to_regclass('toolyard.meta') IS NOT NULL", &[]).await?;
    if there.first().is_some_and(|row| row.get::<_, bool>(0)) {
        return meta_number(client, VERSION).await;
    }
    Ok(None)
}

async fn meta_number(client: &Client, key: &str) -> Result<Option<i64>, Trouble> {
    Ok(meta(client, key).await?.and_then(|value| String::from_utf8(value).ok()?.parse().ok()))
}

/// A value of the table `meta`.
pub(crate) async fn meta(client: &Client, key: &str) -> Result<Option<Vec<u8>>, Trouble> {
    let rows = client.query_typed("SELECT value FROM toolyard.meta WHERE key = $1", &[(&key, Type::TEXT)]).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
}

/// Sets a value of the table `meta` unless it is there, and answers what is there then.
pub(crate) async fn meta_once(client: &Client, key: &str, value: &[u8]) -> Result<Vec<u8>, Trouble> {
    let sql = "INSERT INTO toolyard.meta (key, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    client.query_typed(sql, &[(&key, Type::TEXT), (&value, Type::BYTEA)]).await?;
    Ok(meta(client, key).await?.unwrap_or_default())
}
