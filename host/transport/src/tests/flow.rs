//! Order, credit and independence of channels and messages.

use bytes::Bytes;
use quinn::VarInt;
use weir_channel::Frame;
use weir_model::limits::{CONTROL_MESSAGE_BYTES_MAX, FRAME_BYTES_MAX};

use super::rig::{Cluster, control, data, header, rows, soon};
use crate::{CloseCause, TransportError, TrySend};

#[tokio::test]
async fn frames_arrive_in_order_and_the_end_after_them() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.endpoint("a"), cluster.endpoint("b"));
    let (ours, theirs) = soon("data", data(&a, &b, "b")).await;
    let frames = |round: i64| [rows(round, 1, 3), rows(round, 4_000, 500), Frame::Watermark(round), Frame::Idle];
    let writer = tokio::spawn(async move {
        let mut writer = ours.open(&header(7)).await.unwrap();
        for frame in (0..8).flat_map(frames) {
            writer.send(frame).await.unwrap();
        }
        writer.send(Frame::End).await.unwrap();
        writer.finish().await.unwrap();
        ours
    });
    let (said, mut reader) = soon("channel", theirs.accept()).await.unwrap();
    assert_eq!(said, header(7));
    for frame in (0..8).flat_map(frames) {
        assert_eq!(soon("frame", reader.recv()).await.unwrap(), Some(frame));
    }
    assert_eq!(soon("end", reader.recv()).await.unwrap(), Some(Frame::End));
    assert_eq!(soon("finish", reader.recv()).await.unwrap(), None);
    let ours = writer.await.unwrap();
    assert!(ours.metrics().sent_bytes > 8 * 4_000 * 500);
}

#[tokio::test]
async fn a_channel_that_is_not_read_stops_its_writer_and_nobody_else() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.endpoint("a"), cluster.endpoint("b"));
    let (ours, theirs) = soon("data", data(&a, &b, "b")).await;
    let (ours_control, theirs_control) = soon("control", control(&a, &b)).await;

    let mut blocked = ours.open(&header(0)).await.unwrap();
    let (_, mut unread) = soon("channel", theirs.accept()).await.unwrap();
    let blocked = tokio::spawn(async move {
        for frame in 0..40 {
            blocked.send(rows(frame, 1_000, 1_000)).await.unwrap();
        }
        blocked.finish().await.unwrap();
    });

    // Other channels, and messages, go on for much longer than the blocked channel's window.
    let mut free = ours.open(&header(1)).await.unwrap();
    let (_, mut read) = soon("channel", theirs.accept()).await.unwrap();
    let (sender, _receiver) = ours_control.split();
    let (_sender, mut messages) = theirs_control.split();
    for round in 0..40 {
        let (sent, received) = tokio::join!(free.send(rows(round, 1_000, 1_000)), soon("frame", read.recv()));
        sent.unwrap();
        assert_eq!(received.unwrap(), Some(rows(round, 1_000, 1_000)));
        sender.send(Bytes::from(round.to_string())).await.unwrap();
        assert_eq!(soon("message", messages.recv()).await.unwrap(), round.to_string());
    }
    assert!(!blocked.is_finished(), "40 MB do not fit into the window");

    for frame in 0..40 {
        assert_eq!(soon("frame", unread.recv()).await.unwrap(), Some(rows(frame, 1_000, 1_000)));
    }
    assert_eq!(soon("finish", unread.recv()).await.unwrap(), None);
    soon("writer", blocked).await.unwrap();
}

#[tokio::test]
async fn messages_of_all_sizes_keep_their_order_both_ways() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.endpoint("a"), cluster.endpoint("b"));
    let (ours, theirs) = soon("control", control(&a, &b)).await;
    let sizes = [0, 1, 5, 70_000, 3, 1 << 20, 0, CONTROL_MESSAGE_BYTES_MAX, 17];
    let message = |index: usize| Bytes::from(vec![index as u8; sizes[index]]);
    let exchange = |(sender, mut receiver): (crate::ControlSender, crate::ControlReceiver)| async move {
        let send = async {
            for index in 0..sizes.len() {
                sender.send(message(index)).await.unwrap();
            }
        };
        let receive = async {
            for index in 0..sizes.len() {
                assert!(receiver.recv().await.unwrap() == message(index), "message {index}");
            }
        };
        tokio::join!(send, receive);
        (sender, receiver)
    };
    let (_a, _b) = soon("exchange", async { tokio::join!(exchange(ours.split()), exchange(theirs.split())) }).await;
}

#[tokio::test]
async fn a_full_queue_of_messages_says_so_and_gives_the_message_back() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.endpoint("a"), cluster.endpoint("b"));
    let (ours, theirs) = soon("control", control(&a, &b)).await;
    let (sender, _receiver) = ours.split();
    let message = Bytes::from(vec![1; 1 << 20]);
    let full = loop {
        match sender.try_send(message.clone()) {
            Ok(()) => tokio::task::yield_now().await,
            Err(TrySend::Full(back)) => break back,
            Err(TrySend::Failed(error)) => panic!("{error}"),
        }
    };
    assert_eq!(full.len(), message.len());
    drop(theirs);
    let error = soon("close", sender.closed()).await;
    assert!(matches!(error, TransportError::Closed { cause: CloseCause::Peer(_), .. }), "{error}");
    let failed = async {
        while !matches!(sender.try_send(message.clone()), Err(TrySend::Failed(_))) {
            tokio::task::yield_now().await;
        }
    };
    soon("failure", failed).await;
    soon("failure", sender.send(message)).await.unwrap_err();
}

#[tokio::test]
async fn the_last_words_arrive_before_a_connection_is_closed() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.endpoint("a"), cluster.endpoint("b"));
    for _ in 0..20 {
        let (ours, theirs) = soon("control", control(&a, &b)).await;
        let (sender, receiver) = ours.split();
        let (_theirs, mut messages) = theirs.split();
        let last = Bytes::from(vec![7; 300_000]);
        sender.try_send(last.clone()).unwrap();
        let (finished, received) = tokio::join!(soon("finish", sender.finish()), soon("message", messages.recv()));
        finished.unwrap();
        assert_eq!(received.unwrap(), last);
        assert!(matches!(sender.try_send(last), Err(TrySend::Failed(_))));
        drop((sender, receiver));
        soon("end", messages.recv()).await.unwrap_err();
    }
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_on_either_side_and_names_the_peer() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.endpoint("a"), cluster.endpoint("b"));
    let (ours, theirs) = soon("control", control(&a, &b)).await;
    let (sender, _receiver) = ours.split();
    let error = sender.send(Bytes::from(vec![0; CONTROL_MESSAGE_BYTES_MAX + 1])).await.unwrap_err();
    assert!(error.to_string().contains("b at "), "{error}");

    // A peer that does not check: the bytes of a length nobody may send.
    let (_, mut receiver) = theirs.split();
    sender.send_unchecked(Bytes::copy_from_slice(&u32::MAX.to_le_bytes())).await;
    let error = soon("refusal", receiver.recv()).await.unwrap_err();
    assert!(matches!(error, TransportError::MessageTooLong { len, .. } if len == u32::MAX as usize), "{error}");
    assert!(error.to_string().contains("a at "), "{error}");
    soon("close", sender.closed()).await;
}

#[tokio::test]
async fn what_is_no_frame_closes_the_channel_only_and_names_the_peer() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.endpoint("a"), cluster.endpoint("b"));
    let (ours, theirs) = soon("data", data(&a, &b, "b")).await;
    let mut good = ours.open(&header(0)).await.unwrap();
    let (_, mut good_reader) = soon("channel", theirs.accept()).await.unwrap();

    let mut bad = ours.open(&header(1)).await.unwrap();
    let (_, mut bad_reader) = soon("channel", theirs.accept()).await.unwrap();
    bad.write(&[0; 100]).await.unwrap();
    let error = soon("refusal", bad_reader.recv()).await.unwrap_err();
    assert!(matches!(error, TransportError::Frame { .. }) && error.to_string().contains("a at "), "{error}");
    let told = async {
        loop {
            match bad.send(Frame::Idle).await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => break error,
            }
        }
    };
    let error = soon("the sender learns it", told).await;
    assert!(matches!(error, TransportError::ChannelClosed { .. }) && error.to_string().contains("b at "), "{error}");

    good.send(Frame::Watermark(1)).await.unwrap();
    assert_eq!(soon("frame", good_reader.recv()).await.unwrap(), Some(Frame::Watermark(1)));

    // A row too long for any frame never leaves this process.
    let mut long = weir_model::Batch::default();
    long.push(0, b"", &vec![0; FRAME_BYTES_MAX + 1]);
    let error = good.send(Frame::Rows(long.into())).await.unwrap_err();
    assert!(error.to_string().contains("row 0"), "{error}");
}

#[tokio::test]
async fn a_writer_that_is_dropped_is_an_error_not_an_end() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.endpoint("a"), cluster.endpoint("b"));
    let (ours, theirs) = soon("data", data(&a, &b, "b")).await;
    let mut writer = ours.open(&header(0)).await.unwrap();
    let (_, mut reader) = soon("channel", theirs.accept()).await.unwrap();
    writer.send(Frame::Idle).await.unwrap();
    assert_eq!(soon("frame", reader.recv()).await.unwrap(), Some(Frame::Idle));
    drop(writer);
    soon("error", reader.recv()).await.unwrap_err();

    let mut writer = ours.open(&header(1)).await.unwrap();
    let (_, reader) = soon("channel", theirs.accept()).await.unwrap();
    reader.stop(99);
    let told = async {
        loop {
            match writer.send(Frame::Idle).await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => break error,
            }
        }
    };
    assert!(matches!(soon("stop", told).await, TransportError::ChannelClosed { code: 99, .. }));
}

#[tokio::test]
async fn a_stream_that_does_not_start_as_a_channel_is_refused_and_others_go_on() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.endpoint("a"), cluster.endpoint("b"));
    let (ours, theirs) = soon("data", data(&a, &b, "b")).await;
    let mut garbage = ours.connection().open_uni().await.unwrap();
    garbage.write_all(&[9; 64]).await.unwrap();
    let _writer = ours.open(&header(5)).await.unwrap();
    let (said, _reader) = soon("channel", theirs.accept()).await.unwrap();
    assert_eq!(said, header(5));
    assert_eq!(soon("refusal", garbage.stopped()).await.unwrap(), Some(VarInt::from_u32(2)));
}
