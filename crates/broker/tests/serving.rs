//! The thin path: a client creates a topic, produces, fetches, and finds it all again after restarts.

mod common;

use common::*;
use talos_protocol::messages::*;
use talos_protocol::{ApiKey, ErrorCode};

#[tokio::test(start_paused = true)]
async fn a_record_goes_in_and_comes_out_and_outlives_stop_and_kill() {
    let world = World::new();
    let mut started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 2).await, 0);
    let answer = client.produce("t", 1, batch(&["a", "b"])).await;
    assert_eq!((answer.error_code, answer.base_offset, answer.log_start_offset), (0, 0, 0));
    for round in 0..3 {
        let mut client = started.connect();
        let next = 2 + round;
        let answer = client.produce("t", 1, batch(&["x"])).await;
        assert_eq!((answer.error_code, answer.base_offset), (0, next));
        let data = client.fetch("t", 1, 0).await;
        assert_eq!(data.high_watermark, next + 1);
        assert_eq!(values(&data)[..2], [(0, "a".to_owned()), (1, "b".to_owned())]);
        assert_eq!(values(&data).len() as i64, next + 1);
        assert_eq!(client.list_offset("t", 1, -1).await, (next + 1, -1));
        assert_eq!(client.list_offset("t", 1, -2).await, (0, -1));
        assert_eq!(client.list_offset("t", 0, -1).await, (0, -1));
        match round {
            1 => started.kill(),
            _ => started.stop().await,
        }
        started = world.start().await;
    }
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn api_versions_tell_what_is_served_and_c12() {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    let request = ApiVersionsRequest {
        client_software_name: "test".into(),
        client_software_version: "1.0".into(),
        ..Default::default()
    };
    let response = client.call(3, &request).await;
    assert_eq!(response.error_code, 0);
    let range = |key: ApiKey| {
        let found = response.api_keys.iter().find(|api| api.api_key == key.code());
        found.map(|api| (api.min_version, api.max_version))
    };
    // KAFKA-18659: old librdkafka takes any other start for «no Produce».
    assert_eq!(range(ApiKey::Produce), Some((0, 13)));
    assert_eq!(range(ApiKey::Fetch), Some((4, 18)));
    assert_eq!(range(ApiKey::EndTxn), None);
    let odd = ApiVersionsRequest { client_software_name: "-x".into(), ..request };
    assert_eq!(client.call(3, &odd).await.error_code, ErrorCode::InvalidRequest.code());
    started.stop().await;
}
