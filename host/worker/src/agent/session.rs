//! One connection to the coordinator, from registration to loss.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::Receiver;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, timeout};
use weir_model::Epoch;
use weir_model::limits::HEARTBEAT_INTERVAL_MS;
use weir_protocol::{Command, Envelope, Order, Register, Report, decode, encode};
use weir_transport::{Control, ControlReceiver, ControlSender};

use super::allegiance::OtherLeader;
use super::beats::Beats;
use super::fitting::{fitting, fitting_registration};
use super::station::Station;
use super::watch;

/// How long the coordinator may take to answer a registration.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);

/// How a connection ended.
pub(super) enum End {
    /// The coordinator does not take this worker.
    Refused(String),
    /// Another one leads what runs here: this worker does not take that coordinator.
    OtherLeader(OtherLeader),
    /// It is lost.
    Lost {
        /// Why.
        reason: String,
        /// Whether the worker had been welcomed.
        joined: bool,
    },
}

/// Registers and serves. Cancelling closes the connection.
pub(super) async fn serve(station: &Station, address: &str, control: Control) -> End {
    let coordinator = control.peer().clone();
    let (sender, mut receiver) = control.split();
    let lost = |reason: String| End::Lost { reason, joined: false };
    // From here on reports are kept for this connection; what was reported before shows in what runs.
    let reports = station.outbox.connect();
    let register = match register(station, address).await {
        Ok(register) => register,
        Err(reason) => return lost(reason),
    };
    let led_by = register.led_by;
    if let Err(error) = sender.send(fitting_registration(register).into()).await {
        return lost(error.to_string());
    }
    let Order { epoch, command } = match timeout(WELCOME_TIMEOUT, receive(&mut receiver)).await {
        Ok(Ok(envelope)) => envelope.message,
        Ok(Err(reason)) => return lost(reason),
        Err(_) => return lost(format!("it did not answer the registration within {WELCOME_TIMEOUT:?}")),
    };
    let keep = match command {
        Command::Welcome { keep, succeeds } => match station.allegiance.join(led_by, epoch, &succeeds) {
            Ok(()) => keep,
            Err(why) => return End::OtherLeader(why),
        },
        Command::Refused { reason } => return End::Refused(reason),
        _ => return lost("it answered the registration with something else".to_owned()),
    };
    tracing::info!(%coordinator, %epoch, slots = station.slots, goes_on = keep.len(), "joined the cluster");
    let worker = station.worker.clone();
    if spawn_blocking(move || worker.keep_only(&keep)).await.is_err() {
        return lost("the worker panicked".to_owned());
    }
    station.components.connected();
    let reason = tokio::select! {
        reason = speak(&sender, reports, station) => reason,
        reason = listen(station, epoch, &mut receiver) => reason,
        () = watch::until_gone(address, &station.identity, &coordinator) => "its process has ended".to_owned(),
    };
    End::Lost { reason, joined: true }
}

async fn register(station: &Station, address: &str) -> Result<Register, String> {
    let data_address = station.data_address(address);
    let worker = station.worker.clone();
    let running = spawn_blocking(move || worker.running()).await.map_err(|error| error.to_string())?;
    let clock_ms = wall_ms(SystemTime::now());
    Ok(Register {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        slots: station.slots,
        data_address,
        clock_ms,
        led_by: station.allegiance.of(&running),
        running,
    })
}

fn wall_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

async fn receive(receiver: &mut ControlReceiver) -> Result<Envelope<Order>, String> {
    let bytes = receiver.recv().await.map_err(|error| error.to_string())?;
    decode(&bytes).map_err(|error| error.to_string())
}

/// Sends reports as they come, and heartbeats. Ends with the connection.
async fn speak(sender: &ControlSender, mut reports: Receiver<Report>, station: &Station) -> String {
    let mut beat = interval(Duration::from_millis(HEARTBEAT_INTERVAL_MS));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut beats = Beats::default();
    let mut certificate = None;
    let mut known_stuck = 0;
    loop {
        let mut messages = tokio::select! {
            report = reports.recv() => match report {
                Some(report) => vec![fitting(report)],
                None => return "it did not take what was to be said".to_owned(),
            },
            _ = beat.tick() => {
                let worker = station.worker.clone();
                match spawn_blocking(move || (worker.progress(), worker.stuck())).await {
                    Ok((progress, stuck)) => {
                        let mut messages = beats.next(progress);
                        if std::mem::replace(&mut known_stuck, stuck) != stuck {
                            let executions = u32::try_from(stuck).unwrap_or(u32::MAX);
                            messages.push(encode(&Report::Stuck { executions }, &[]));
                        }
                        messages
                    }
                    Err(error) => return error.to_string(),
                }
            }
        };
        let until_ms = wall_ms(station.identity.valid_until());
        if certificate.replace(until_ms) != Some(until_ms) {
            messages.push(encode(&Report::Certificate { until_ms }, &[]));
        }
        for message in messages {
            if let Err(error) = sender.send(message.into()).await {
                return error.to_string();
            }
        }
    }
}

/// Hands over what the coordinator of this epoch says. Ends with the connection.
async fn listen(station: &Station, leader: Epoch, receiver: &mut ControlReceiver) -> String {
    loop {
        let Envelope { message: Order { epoch, command }, attachment } = match receive(receiver).await {
            Ok(envelope) => envelope,
            Err(reason) => return reason,
        };
        if epoch != leader {
            return format!("it speaks for coordinator {epoch}, and coordinator {leader} was joined");
        }
        match command {
            Command::Component { digest, offset, total } => station.components.part(digest, offset, total, &attachment),
            Command::NoComponent { digest, reason } => station.components.missing(digest, &reason),
            Command::Welcome { .. } | Command::Refused { .. } => return "it answered a registration twice".to_owned(),
            command => station.worker.command(command),
        }
    }
}
