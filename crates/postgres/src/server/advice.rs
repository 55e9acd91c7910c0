//! What to do about a refusal of the database or of its certificate. The message says it, because every door shows messages.

use tokio_postgres::error::SqlState;

/// A refusal with what to do about it.
pub(super) fn refused(state: &SqlState, message: &str) -> String {
    match advice(state, message) {
        Some(advice) => format!("{message}: {advice}"),
        None => message.to_owned(),
    }
}

fn advice(state: &SqlState, message: &str) -> Option<&'static str> {
    let advice = if *state == SqlState::INVALID_PASSWORD {
        "correct the user and the password in store.url or TOOLYARD_STORE_URL"
    } else if *state == SqlState::INVALID_CATALOG_NAME {
        "create the database first, with the user of store.url as its owner"
    } else if *state == SqlState::INSUFFICIENT_PRIVILEGE {
        "the user of store.url needs CREATE on the database, and to own the schema toolyard"
    } else if *state == SqlState::INVALID_AUTHORIZATION_SPECIFICATION && message.contains("no encryption") {
        "the server wants TLS; add sslmode=verify-full or sslmode=require to store.url, and look at its pg_hba.conf"
    } else if *state == SqlState::INVALID_AUTHORIZATION_SPECIFICATION {
        "create this user, or let it in with a line in the server's pg_hba.conf"
    } else {
        return None;
    };
    Some(advice)
}

/// What an error of the connection means, with what to do about it.
pub(super) fn explained(reason: &str) -> String {
    let advice = if reason.contains("UnknownIssuer") {
        "no authority that is trusted here issued the server's certificate; name the file of its authority with \
         sslrootcert in store.url"
    } else if reason.contains("not valid for name") {
        "write the host in store.url as the server's certificate names it"
    } else if reason.contains("Expired") {
        "renew the server's certificate"
    } else if reason.contains("password missing") {
        "the server wants a password; name it in store.url or TOOLYARD_STORE_URL"
    } else if reason.contains("onnection refused") {
        "no server listens there; start it, or correct the host and the port in store.url"
    } else if reason.contains("failed to lookup address") {
        "no such host is known; correct the host in store.url"
    } else {
        return reason.to_owned();
    };
    format!("{reason}: {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do_about_it() {
        let encrypted = "no pg_hba.conf entry for host \"10.0.0.1\", user \"t\", database \"y\", no encryption";
        for (state, message, words) in [
            (SqlState::INVALID_PASSWORD, "password authentication failed for user \"t\"", "store.url"),
            (SqlState::INVALID_CATALOG_NAME, "database \"y\" does not exist", "create the database"),
            (SqlState::INSUFFICIENT_PRIVILEGE, "permission denied for schema toolyard", "CREATE"),
            (SqlState::INVALID_AUTHORIZATION_SPECIFICATION, encrypted, "sslmode"),
            (SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "role \"t\" does not exist", "pg_hba.conf"),
        ] {
            let told = refused(&state, message);
            assert!(told.starts_with(message) && told[message.len()..].contains(words), "{told}");
        }
        assert_eq!(refused(&SqlState::SYNTAX_ERROR, "no"), "no");
        assert_eq!(explained("end of file"), "end of file");
        assert!(explained("Connection refused (os error 111)").contains("listens"));
    }
}
