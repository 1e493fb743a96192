//! The watermark of a task from those of its input channels.

use weir_model::{Timestamp, WATERMARK_END, WATERMARK_START};

#[derive(Clone, Copy, Debug)]
struct Input {
    watermark: Timestamp,
    idle: bool,
    ended: bool,
}

/// What the inputs of a task say about event time: the task's watermark is the least of the channels that neither idle
/// nor have ended. It never falls. The end of time is the end of one channel, and the task's only where all have told it: one that
/// idles may have rows yet.
#[derive(Clone, Debug)]
pub struct Watermarks {
    inputs: Vec<Input>,
    combined: Timestamp,
}

impl Watermarks {
    /// For a task with `channels` input channels that have said nothing yet.
    pub fn new(channels: usize) -> Watermarks {
        let input = Input { watermark: WATERMARK_START, idle: false, ended: false };
        Watermarks { inputs: vec![input; channels], combined: WATERMARK_START }
    }

    /// The last watermark of each channel.
    pub fn channels(&self) -> Vec<Timestamp> {
        self.inputs.iter().map(|input| input.watermark).collect()
    }

    /// The task's watermark.
    pub fn combined(&self) -> Timestamp {
        self.combined
    }

    /// Whether every channel that has not ended idles, and there is one.
    pub fn is_idle(&self) -> bool {
        let mut open = self.inputs.iter().filter(|input| !input.ended).peekable();
        open.peek().is_some() && open.all(|input| input.idle)
    }

    /// Rows arrived: the channel idles no longer.
    pub fn active(&mut self, channel: usize) {
        self.inputs[channel].idle = false;
    }

    /// A watermark arrived. Returns the task's watermark if it rose.
    pub fn advance(&mut self, channel: usize, watermark: Timestamp) -> Option<Timestamp> {
        let input = &mut self.inputs[channel];
        input.idle = false;
        input.watermark = input.watermark.max(watermark);
        self.combine()
    }

    /// The channel has nothing for now. Returns the task's watermark if it rose.
    pub fn idle(&mut self, channel: usize) -> Option<Timestamp> {
        self.inputs[channel].idle = true;
        self.combine()
    }

    /// The channel has ended. Returns the task's watermark if it rose.
    pub fn end(&mut self, channel: usize) -> Option<Timestamp> {
        let input = &mut self.inputs[channel];
        input.ended = true;
        self.combine()
    }

    /// Whether every channel has ended.
    pub fn all_ended(&self) -> bool {
        self.inputs.iter().all(|input| input.ended)
    }

    fn combine(&mut self) -> Option<Timestamp> {
        let is_over = |input: &Input| input.ended || input.watermark == WATERMARK_END;
        let active = self.inputs.iter().filter(|input| !input.idle && !is_over(input));
        let lowest =
            if self.inputs.iter().all(is_over) { Some(WATERMARK_END) } else { active.map(|input| input.watermark).min() };
        let risen = lowest.filter(|&lowest| lowest > self.combined)?;
        self.combined = risen;
        Some(risen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_active_channel_counts() {
        let mut watermarks = Watermarks::new(2);
        assert_eq!(watermarks.advance(0, 10), None, "the other has said nothing");
        assert_eq!(watermarks.advance(1, 5), Some(5));
        assert_eq!(watermarks.advance(1, 4), None, "never falls");
        assert_eq!(watermarks.advance(1, 20), Some(10));
    }

    #[test]
    fn s28_an_idle_channel_does_not_hold_event_time_back() {
        let mut watermarks = Watermarks::new(2);
        watermarks.advance(0, 10);
        assert_eq!(watermarks.idle(1), Some(10));
        assert!(!watermarks.is_idle());
        assert_eq!(watermarks.idle(0), None);
        assert!(watermarks.is_idle());
        watermarks.active(1);
        assert_eq!(watermarks.advance(0, 30), None, "the other is back with an old watermark");
        assert_eq!(watermarks.combined(), 10);
    }

    #[test]
    fn an_ended_channel_counts_no_more_and_all_ended_is_the_end_of_time() {
        let mut watermarks = Watermarks::new(2);
        watermarks.advance(0, 10);
        assert_eq!(watermarks.end(1), Some(10));
        assert_eq!(watermarks.end(0), Some(WATERMARK_END));
    }

    #[test]
    fn s28_the_end_of_one_channel_is_not_the_end_of_time_while_another_idles() {
        let mut watermarks = Watermarks::new(3);
        watermarks.advance(0, 10);
        watermarks.advance(2, 20);
        assert_eq!(watermarks.idle(1), Some(10));
        assert_eq!(watermarks.advance(0, WATERMARK_END), Some(20), "what is left counts");
        assert_eq!(watermarks.end(0), None);
        assert_eq!(watermarks.advance(2, WATERMARK_END), None, "the one that idles may have more");
        assert_eq!(watermarks.end(2), None);
        assert!(watermarks.is_idle());
        watermarks.active(1);
        assert_eq!(watermarks.advance(1, 30), Some(30));
        assert_eq!(watermarks.advance(1, WATERMARK_END), Some(WATERMARK_END));
    }

    #[test]
    fn what_each_channel_said_last_is_kept_for_the_snapshot() {
        let mut watermarks = Watermarks::new(2);
        watermarks.advance(0, 7);
        watermarks.advance(1, 9);
        assert_eq!(watermarks.combined(), 7);
        assert_eq!(watermarks.channels(), [7, 9]);
        assert_eq!(Watermarks::new(3).combined(), WATERMARK_START);
    }
}
