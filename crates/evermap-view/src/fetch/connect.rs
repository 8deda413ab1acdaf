//! How servers are found and connected to: ureq's own way, with two changes.
//!
//! The one place that uses the part of ureq which is outside its promise of compatibility, so that
//! `Cargo.toml` asks for one minor version of it.

use std::io;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    ConnectionDetails, Connector, DefaultConnector, NextTimeout, Transport,
};

/// Connects with one set of certificates for all connections.
///
/// Each request has a timeout of its own and so a configuration of its own, for which ureq would
/// read the system's certificates anew, some 10 ms; all that concerns TLS is the same in all of them.
#[derive(Debug, Default)]
pub(super) struct SharedTls(DefaultConnector);

impl Connector for SharedTls {
    type Out = Box<dyn Transport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let shared = ConnectionDetails {
            uri: details.uri,
            addrs: details.addrs.clone(),
            config: details.config,
            request_level: false,
            resolver: details.resolver,
            now: details.now,
            timeout: details.timeout,
            current_time: details.current_time.clone(),
            run_connector: details.run_connector.clone(),
            register_shutdown: details.register_shutdown.clone(),
        };
        self.0.connect(&shared, chained)
    }
}

/// A name without an address: the host's, or the proxy's.
#[derive(Debug, thiserror::Error)]
#[error("the host `{host}` was not found: {why}")]
pub(super) struct UnknownHost {
    pub(super) host: String,
    pub(super) why: String,
}

/// Finds hosts, and says of its failures that they are not about a connection: they are
/// [`UnknownHost`].
#[derive(Debug, Default)]
pub(super) struct NamedFailures(DefaultResolver);

impl Resolver for NamedFailures {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        self.0.resolve(uri, config, timeout).map_err(|error| {
            let why = match error {
                ureq::Error::Io(e) => e.to_string(),
                ureq::Error::HostNotFound => "it has no address".to_string(),
                other => return other,
            };
            let host = uri.host().unwrap_or_default().to_string();
            ureq::Error::Io(io::Error::other(UnknownHost { host, why }))
        })
    }
}
