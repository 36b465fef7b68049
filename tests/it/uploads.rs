//! Artifacts over HTTP and from the command line.

use serde_json::{Value, json};

use crate::support::{Daemon, Place, sha256, wait_until};

#[test]
fn uploads_are_stored_listed_read_and_removed() {
    let daemon = Daemon::start();
    let client = daemon.remote();
    let body: Vec<u8> = (0..700_000u32).map(|n| (n.wrapping_mul(n) >> 3) as u8).collect();
    let stored = client.request("POST", "/v1/artifacts?name=a.png&run=r1&session=s1").body(&body).send();
    assert_eq!(stored.status, 201);
    let meta = stored.json();
    let target = format!("/v1/artifacts/{}", meta["id"].as_str().unwrap());
    assert_eq!(stored.header("location"), Some(target.as_str()));
    assert_eq!(
        (&meta["sha256"], &meta["size"], &meta["mime"]),
        (&json!(sha256(&body)), &json!(700_000), &json!("image/png"))
    );
    assert_eq!((&meta["run"], &meta["session"]), (&json!("r1"), &json!("s1")));
    assert!(meta["createdAt"].as_str() < meta["expiresAt"].as_str(), "{meta}");

    let got = client.get(&target);
    assert!(got.body == body, "the bytes that were sent");
    let head = client.request("HEAD", &target).send();
    assert_eq!((head.status, head.body.len()), (200, 0));
    for answer in [&got, &head] {
        for (name, value) in [
            ("content-type", "image/png"),
            ("content-length", "700000"),
            ("etag", &format!("\"{}\"", sha256(&body))),
            ("x-mcpx-sha256", &sha256(&body)),
            ("content-disposition", "attachment; filename=\"a.png\""),
            ("x-content-type-options", "nosniff"),
            ("content-security-policy", "sandbox"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{name}");
        }
    }
    let unchanged = client.request("GET", &target).header("if-none-match", &format!("\"{}\"", sha256(&body))).send();
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));

    assert_eq!(client.post("/v1/artifacts?name=b.txt&run=r2", "b").status, 201);
    let list = |query: &str| client.get(&format!("/v1/artifacts{query}")).json();
    let names = |listed: &Value| -> Vec<String> {
        listed["artifacts"].as_array().unwrap().iter().map(|a| a["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&list("")), ["b.txt", "a.png"], "newest first");
    assert_eq!(
        (names(&list("?run=r1")), names(&list("?session=s1"))),
        (vec!["a.png".to_owned()], vec!["a.png".to_owned()])
    );
    let page = list("?limit=1");
    assert_eq!(names(&page), ["b.txt"]);
    let next = list(&format!("?limit=1&cursor={}", page["cursor"].as_str().unwrap()));
    assert_eq!((names(&next), next.get("cursor")), (vec!["a.png".to_owned()], None));

    assert_eq!(client.delete(&target).status, 200);
    for answer in [
        client.delete(&target),
        client.get(&target),
        client.get("/v1/artifacts/art-0"),
        client.get("/v1/artifacts/%2e%2e"),
    ] {
        assert_eq!((answer.status, answer.refusal().0.as_str()), (404, "not_found"));
    }
    for query in ["?limit=0", "?limit=1001", "?limit=x", "?cursor=x", "?unknown=1"] {
        assert_eq!(client.get(&format!("/v1/artifacts{query}")).status, 400, "{query}");
    }
    for query in ["?ttl=x", "?ttl=0s", "?ttl=120", "?mime=text/html%0D%0ASet-Cookie:%20a=1", "?unknown=1"] {
        assert_eq!(client.post(&format!("/v1/artifacts{query}"), "x").status, 400, "{query}");
    }
    assert_eq!(daemon.status()["artifacts"]["count"], 1);
}

#[test]
fn an_upload_that_breaks_off_leaves_nothing() {
    let mut daemon = Daemon::start();
    let mut stream = daemon.client().connect();
    let head = "POST /v1/artifacts?name=half HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n";
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    std::io::Write::write_all(&mut stream, &[b'x'; 300_000]).unwrap();
    drop(stream);
    daemon.is_alive();
    assert_eq!(daemon.client().get("/v1/artifacts").json(), json!({"artifacts": []}));
}

#[test]
fn an_artifact_is_gone_when_its_time_is_over() {
    let daemon = Daemon::start();
    let mine = daemon.value("return await artifact('short', 'x', { ttl: 300 })");
    let uploaded = daemon.client().post("/v1/artifacts?name=short&ttl=300ms", "x").json();
    let kept = daemon.value("return await artifact('long', 'x', { ttl: 3_600_000 })");
    let status =
        |artifact: &Value| daemon.client().get(&format!("/v1/artifacts/{}", artifact["id"].as_str().unwrap())).status;
    wait_until("the artifacts to expire", || status(&mine) == 404 && status(&uploaded) == 404);
    assert_eq!(status(&kept), 200);
    let listed = daemon.client().get("/v1/artifacts").json();
    assert_eq!(listed["artifacts"].as_array().unwrap().len(), 1, "{listed:#}");
}

#[test]
fn the_command_line_puts_lists_gets_and_deletes() {
    let place = Place::new();
    let body: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let file = place.write("in.bin", &body);
    let id = place.mcpx(&["artifact", "put", "in.bin", "--name", "x.gif", "--ttl", "1h"]).ok().trim().to_owned();
    let listed = place.mcpx(&["artifact", "list"]).ok();
    for part in [id.as_str(), "100000", "image/gif", "x.gif"] {
        assert!(listed.contains(part), "{part} in {listed}");
    }
    assert_eq!(
        place.mcpx(&["--json", "artifact", "list", "--limit", "1"]).json()["artifacts"][0]["sha256"],
        sha256(&body)
    );
    let said = place.mcpx(&["artifact", "get", &id, "-o", "out.bin"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""), "{said:?}");
    assert!(std::fs::read(place.work().join("out.bin")).unwrap() == body);
    let said = place.mcpx(&["artifact", "get", &id, "-o", "out.bin"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.stderr.contains("not overwritten"), "{said:?}");
    let said = place.mcpx(&["artifact", "get", "art-00000000000000000000000000000000", "-o", "none.bin"]);
    assert_eq!(said.code, 1, "{said:?}");
    let mut names: Vec<_> = std::fs::read_dir(place.work())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["in.bin", "out.bin"], "nothing half-written is left");
    let text = place.mcpx(&["--json", "artifact", "put", place.write("t.txt", "text").to_str().unwrap()]).json();
    assert_eq!(place.mcpx(&["artifact", "get", text["id"].as_str().unwrap()]).ok(), "text");
    place.mcpx(&["artifact", "delete", &id]).ok();
    assert_eq!(place.mcpx(&["artifact", "delete", &id]).code, 1);
    assert_eq!(place.mcpx(&["artifact", "get", &id]).code, 1);
    assert_eq!(std::fs::read(file).unwrap(), body);
}

#[test]
fn a_run_says_on_standard_error_what_it_stored() {
    let place = Place::new();
    let said = place.mcpx(&["exec", "return (await artifact('a.txt', 'hello')).id"]);
    let id = said.stdout.trim();
    assert_eq!(said.code, 0, "{said:?}");
    for part in ["a.txt", "text/plain", "5 bytes", id] {
        assert!(said.stderr.contains(part), "{part} in {}", said.stderr);
    }
    assert_eq!(place.mcpx(&["artifact", "get", id]).ok(), "hello");
}
