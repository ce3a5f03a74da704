//! Where a request came from. A proxy on this machine is believed whom it has it from; nobody else is. Knows no proxy.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request};

/// To which each proxy adds whom it has the request from.
const FORWARDED: &str = "x-forwarded-for";

/// The address of the client of a request, where it came over a connection.
pub fn client_address(request: &Request) -> Option<IpAddr> {
    let ConnectInfo(peer) = request.extensions().get::<ConnectInfo<SocketAddr>>()?;
    let peer = peer.ip().to_canonical();
    let forwarded = || {
        let last = request.headers().get_all(FORWARDED).iter().next_back()?;
        let last = last.to_str().ok()?.rsplit(',').next()?.trim();
        last.parse().ok().map(|ip: IpAddr| ip.to_canonical())
    };
    Some(match peer.is_loopback() {
        true => forwarded().unwrap_or(peer),
        false => peer,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn a_proxy_on_this_machine_is_believed_and_nobody_else() {
        let local = [127, 0, 0, 1];
        for (peer, forwarded, client) in [
            (local, &["1.2.3.4"][..], "1.2.3.4"),
            // Only what the nearest one added: before it stands what it was told.
            (local, &["9.9.9.9, 1.2.3.4"], "1.2.3.4"),
            (
                local,
                &["9.9.9.9", " 8.8.8.8 ,  ::ffff:1.2.3.4 "],
                "1.2.3.4",
            ),
            (local, &["2001:db8::1"], "2001:db8::1"),
            (local, &[], "127.0.0.1"),
            (local, &["unknown"], "127.0.0.1"),
            (local, &["1.2.3.4,"], "127.0.0.1"),
            ([10, 0, 0, 1], &["1.2.3.4"], "10.0.0.1"),
        ] {
            let mut request = Request::new(Body::empty());
            let peer = SocketAddr::from((peer, 1));
            request.extensions_mut().insert(ConnectInfo(peer));
            for value in forwarded {
                let value = value.parse().unwrap();
                request.headers_mut().append(FORWARDED, value);
            }
            let found = client_address(&request).unwrap().to_string();
            assert_eq!(found, client, "{peer} {forwarded:?}");
        }
        assert_eq!(client_address(&Request::new(Body::empty())), None);
    }
}
