//! Sends one request to one server and reads the complete response, without cache or redirects. The
//! call's limits apply to the response after decompression.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{AGE, CONTENT_ENCODING, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body, Proxy};

use super::call::{Call, ReadError};
use super::cause::Cause;
use super::connect::{HostResolver, SharedTls, UnknownHost};
use super::options::FetchOptions;

/// Largest age in seconds, see RFC 9111, 1.2.2.
const AGE_MAX_S: u64 = 1 << 31;

/// Sends requests. Reuses connections to the same server.
#[derive(Debug, Default)]
pub(super) struct Transport {
    agent: OnceLock<Agent>,
    requests: AtomicU64,
}

/// A complete response.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Transport {
    /// Returns the number of requests sent.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Sends a request and reads the response to its end.
    pub(super) fn send(
        &self,
        request: &Request<()>,
        options: &FetchOptions,
        call: &Call<'_>,
    ) -> Result<Reply, Cause> {
        let response = match self.try_send(request, options, call) {
            // The server may close a reused connection just as the request is sent. A GET may be
            // sent twice.
            Err(ureq::Error::Io(e)) if is_closed(&e) => self.try_send(request, options, call),
            other => other,
        };
        let response = response.map_err(|error| cause_of(error, request, call))?;
        read_reply(response, request, call)
    }

    fn try_send(
        &self,
        request: &Request<()>,
        options: &FetchOptions,
        call: &Call<'_>,
    ) -> Result<Response<Body>, ureq::Error> {
        let Ok(left) = call.left() else {
            return Err(ureq::Error::Timeout(ureq::Timeout::Global));
        };
        let agent = self.agent.get_or_init(|| agent(options));
        self.requests.fetch_add(1, Ordering::Relaxed);
        let limited = agent
            .configure_request(request.clone())
            .timeout_global(Some(left))
            .timeout_resolve(Some(options.connect_timeout))
            .timeout_connect(Some(options.connect_timeout))
            .build();
        agent.run(limited)
    }
}

fn agent(options: &FetchOptions) -> Agent {
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let proxy = if options.proxy_from_environment { Proxy::try_from_env() } else { None };
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .user_agent(user_agent())
        .proxy(proxy)
        .tls_config(tls)
        .build();
    Agent::with_parts(config, SharedTls::default(), HostResolver::default())
}

/// Returns the `User-Agent` header.
pub(super) fn user_agent() -> &'static str {
    concat!("evermap/", env!("CARGO_PKG_VERSION"))
}

fn read_reply(
    response: Response<Body>,
    request: &Request<()>,
    call: &Call<'_>,
) -> Result<Reply, Cause> {
    let (mut parts, body) = response.into_parts();
    let announced_bytes = body.content_length().unwrap_or(0);
    call.check_size(announced_bytes)?;
    let read = call.read_all(&mut body.into_reader(), announced_bytes);
    let bytes = read.map_err(|unread| match unread {
        ReadError::Limit(cause) => cause,
        ReadError::Source(e) => cause_of(ureq::Error::from(e), request, call),
    })?;
    // ureq removes the header of an encoding that it decodes.
    if let Some(encoding) = parts.headers.get(CONTENT_ENCODING)
        && !bytes.is_empty()
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        let encoding = String::from_utf8_lossy(encoding.as_bytes()).into_owned();
        return Err(Cause::Broken(format!(
            "the server used the compression `{encoding}`, which was not requested"
        )));
    }
    sanitize(&mut parts.headers);
    Ok(Reply { status: parts.status, headers: parts.headers, body: bytes.into() })
}

/// Removes headers that must not be stored, and bounds values that would overflow later.
fn sanitize(headers: &mut HeaderMap) {
    headers.remove(SET_COOKIE);
    let age = headers.get(AGE).map(|age| {
        let digits = age.to_str().unwrap_or("").trim();
        let known = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        known.then(|| digits.parse().unwrap_or(AGE_MAX_S).min(AGE_MAX_S))
    });
    match age {
        Some(Some(seconds)) => {
            headers.insert(AGE, HeaderValue::from(seconds));
        }
        Some(None) => {
            headers.remove(AGE);
        }
        None => {}
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

fn cause_of(error: ureq::Error, request: &Request<()>, call: &Call<'_>) -> Cause {
    let host = request.uri().host().unwrap_or_default();
    match error {
        ureq::Error::Timeout(_) => call.timeout(),
        ureq::Error::Io(e) => cause_of_io(e, host, call),
        ureq::Error::Rustls(e) => cause_of_tls(&e),
        ureq::Error::Tls(_) => {
            Cause::BadAddress(format!("`{host}` is not a valid name for a certificate"))
        }
        ureq::Error::ConnectProxyFailed(why) => {
            Cause::Unreachable(format!("the proxy failed to connect: {why}"))
        }
        ureq::Error::ConnectionFailed => Cause::Unreachable("cannot connect".to_string()),
        ureq::Error::BadUri(why) => Cause::BadAddress(why),
        ureq::Error::Http(e) => Cause::BadAddress(e.to_string()),
        ureq::Error::Protocol(e) => Cause::Broken(format!("the response is not valid HTTP: {e}")),
        ureq::Error::LargeResponseHeader(_, most) => {
            Cause::Broken(format!("the server sent more than {most} bytes of headers"))
        }
        ureq::Error::Decompress(format, e) => {
            Cause::Broken(format!("the response can't be decompressed as {format}: {e}"))
        }
        other => Cause::Broken(other.to_string()),
    }
}

fn cause_of_io(error: io::Error, host: &str, call: &Call<'_>) -> Cause {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => call.timeout(),
        io::ErrorKind::ConnectionRefused => {
            Cause::Unreachable(format!("`{host}` refused the connection"))
        }
        io::ErrorKind::UnexpectedEof => {
            Cause::Broken("the server closed the connection early".to_string())
        }
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            Cause::Broken("the server reset the connection".to_string())
        }
        _ => {
            let inner = error.get_ref();
            if let Some(UnknownHost { host, why }) = inner.and_then(|e| e.downcast_ref()) {
                return Cause::HostNotFound { host: host.clone(), why: why.clone() };
            }
            match inner.and_then(|e| e.downcast_ref()) {
                Some(tls) => cause_of_tls(tls),
                None => Cause::Unreachable(error.to_string()),
            }
        }
    }
}

fn cause_of_tls(error: &rustls::Error) -> Cause {
    use rustls::CertificateError as Bad;
    let why = match error {
        rustls::Error::InvalidCertificate(bad) => match bad {
            Bad::UnknownIssuer => "its issuer is not trusted by the system".to_string(),
            Bad::Expired | Bad::ExpiredContext { .. } => "it has expired".to_string(),
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "it is not valid yet; check this machine's clock".to_string()
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "it was issued for another host".to_string()
            }
            Bad::BadSignature => "its signature is invalid".to_string(),
            other => other.to_string(),
        },
        // The verifier's message for a system without certificates.
        rustls::Error::General(why) => why.clone(),
        other => return Cause::Broken(format!("cannot establish a secure connection: {other}")),
    };
    Cause::Certificate(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_age_is_bounded_or_removed() {
        for (sent, expected) in [
            ("0", Some("0")),
            (" 17 ", Some("17")),
            ("18446744073709551615", Some("2147483648")),
            ("99999999999999999999999", Some("2147483648")),
            ("-1", None),
            ("", None),
            ("1, 2", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AGE, HeaderValue::from_str(sent).unwrap_or(HeaderValue::from(0)));
            sanitize(&mut headers);
            assert_eq!(headers.get(AGE).and_then(|age| age.to_str().ok()), expected, "{sent}");
        }
    }
}
