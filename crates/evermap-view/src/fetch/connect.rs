//! Resolves hosts and connects to servers as ureq does, with two changes.
//!
//! This is the only module that uses ureq's API outside its semver guarantee. `Cargo.toml`
//! therefore requires one minor version of it.

use std::io;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    ConnectionDetails, Connector, DefaultConnector, NextTimeout, Transport,
};

/// Connects with one TLS configuration for all connections.
///
/// Each request has its own timeout and therefore its own configuration, for which ureq would read
/// the system's certificates again (about 10 ms). All TLS settings are equal, so they are shared.
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

/// Name of a host or proxy that has no address.
#[derive(Debug, thiserror::Error)]
#[error("host `{host}` not found: {why}")]
pub(super) struct UnknownHost {
    pub(super) host: String,
    pub(super) why: String,
}

/// Resolves hosts. Returns failures as [`UnknownHost`], to distinguish them from failures to
/// connect.
#[derive(Debug, Default)]
pub(super) struct HostResolver(DefaultResolver);

impl Resolver for HostResolver {
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
