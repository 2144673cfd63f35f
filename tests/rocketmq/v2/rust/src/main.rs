//! Scenarios with RocketMQ's Rust client: `scenarios5 HOST:PORT WORD SCENARIO…`; see scenarios.py beside it.
//! This client has no push consumer, and changes no invisible times.

use std::collections::HashSet;
use std::future::Future;
use std::time::{Duration, SystemTime};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};

const WAIT: Duration = Duration::from_secs(90);
const COUNT: usize = 20;

fn options() -> ClientOption {
    let mut options = ClientOption::default();
    options.set_access_url(std::env::args().nth(1).unwrap());
    options.set_enable_tls(false);
    options.set_long_polling_timeout(Duration::from_secs(3));
    options
}

async fn producer(topic: &str) -> Producer {
    let mut option = ProducerOption::default();
    option.set_topics(vec![topic]);
    let mut made = Producer::new(option, options()).unwrap();
    made.start().await.unwrap();
    made
}

async fn try_simple(topic: &str, group: &str) -> Option<SimpleConsumer> {
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![topic]);
    option.set_consumer_group(group);
    let mut made = SimpleConsumer::new(option, options()).unwrap();
    made.start().await.ok()?;
    Some(made)
}

async fn receive(consumer: &SimpleConsumer, topic: &str, invisible_s: u64) -> Vec<MessageView> {
    let all = FilterExpression::new(FilterType::Tag, "*");
    let found = consumer.receive_with(topic.to_string(), &all, 32, Duration::from_secs(invisible_s));
    found.await.unwrap_or_default()
}

async fn received(consumer: &SimpleConsumer, topic: &str, count: usize, invisible_s: u64) -> Vec<MessageView> {
    let mut found = Vec::new();
    let end = SystemTime::now() + WAIT;
    while found.len() < count {
        assert!(SystemTime::now() < end, "what was waited for did not come");
        found.extend(receive(consumer, topic, invisible_s).await);
    }
    found
}

async fn acked(consumer: &SimpleConsumer, found: &[MessageView]) {
    for each in found {
        consumer.ack(each).await.unwrap();
    }
}

fn body(message: &MessageView) -> String {
    String::from_utf8(message.body().to_vec()).unwrap()
}

fn bodies(found: &[MessageView]) -> String {
    let mut all: Vec<String> = found.iter().map(body).collect();
    all.sort();
    all.join(" ")
}

async fn until<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    let end = SystemTime::now() + WAIT;
    while !condition().await {
        assert!(SystemTime::now() < end, "what was waited for did not come");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

async fn send(sending: &Producer, topic: &str, text: &str) -> bool {
    let made = MessageBuilder::builder().set_topic(topic).set_body(text.as_bytes().to_vec());
    sending.send(made.build().unwrap()).await.is_ok()
}

async fn normal(name: &str) {
    let sending = producer(name).await;
    for number in 0..COUNT {
        let made = MessageBuilder::builder()
            .set_topic(name)
            .set_body(format!("body-{number}").into_bytes())
            .set_tag("tea")
            .set_keys(vec![format!("k-{number}")])
            .set_properties([("p".to_string(), format!("v-{number}"))].into());
        sending.send(made.build().unwrap()).await.unwrap();
    }
    let consumer = try_simple(name, name).await.unwrap();
    let found = received(&consumer, name, COUNT, 30).await;
    acked(&consumer, &found).await;
    let ids: HashSet<&str> = found.iter().map(|each| each.message_id()).collect();
    let attempts: HashSet<i32> = found.iter().map(|each| each.delivery_attempt()).collect();
    println!("{} messages, attempts {attempts:?}", ids.len());
    let one = found.iter().find(|each| body(each) == "body-7").unwrap();
    println!("{} {} {}", one.tag().unwrap(), one.keys().join(" "), one.properties()["p"]);
    println!("then {}", receive(&consumer, name, 30).await.len());
}

async fn again(name: &str) {
    let sending = producer(name).await;
    assert!(send(&sending, name, "back").await && send(&sending, name, "over").await);
    let consumer = try_simple(name, name).await.unwrap();
    received(&consumer, name, 2, 3).await;
    let mut found = received(&consumer, name, 2, 30).await;
    acked(&consumer, &found).await;
    found.sort_by_key(body);
    for each in &found {
        println!("{} {}", body(each), each.delivery_attempt());
    }
}

async fn dlq(name: &str) {
    let sending = producer(name).await;
    assert!(send(&sending, name, "poison").await);
    let consumer = try_simple(name, name).await.unwrap();
    let mut attempts = Vec::new();
    for _ in 0..2 {
        let found = received(&consumer, name, 1, 1).await;
        attempts.push(found[0].delivery_attempt().to_string());
    }
    let letters = format!("%DLQ%{name}");
    let mut undertaker = None;
    until(|| async { try_simple(&letters, &format!("{name}-letters")).await.is_some() }).await;
    undertaker.replace(try_simple(&letters, &format!("{name}-letters")).await.unwrap());
    let undertaker = undertaker.unwrap();
    let found = received(&undertaker, &letters, 1, 30).await;
    acked(&undertaker, &found).await;
    println!("attempts {} letter {}", attempts.join(" "), bodies(&found));
}

async fn fifo(name: &str) {
    let sending = producer(name).await;
    for number in 0..10 {
        for group in ["a", "b"] {
            let made = MessageBuilder::fifo_message_builder(name, number.to_string().into_bytes(), group);
            sending.send(made.build().unwrap()).await.unwrap();
        }
    }
    let consumer = try_simple(name, name).await.unwrap();
    let found = received_in_order(&consumer, name).await;
    for group in ["a", "b"] {
        let own: Vec<String> = found.iter().filter(|each| each.0 == group).map(|each| each.1.clone()).collect();
        println!("{group} {}", own.join(" "));
    }
}

async fn received_in_order(consumer: &SimpleConsumer, topic: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    while found.len() < 20 {
        let batch = received(consumer, topic, 1, 30).await;
        acked(consumer, &batch).await;
        found.extend(batch.iter().map(|each| (each.message_group().unwrap().to_string(), body(each))));
    }
    found
}

async fn delay(name: &str) {
    let now_s = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    let due = now_s() + 4;
    let sending = producer(name).await;
    let made = MessageBuilder::delay_message_builder(name, b"later".to_vec(), due);
    sending.send(made.build().unwrap()).await.unwrap();
    let consumer = try_simple(name, name).await.unwrap();
    let found = received(&consumer, name, 1, 30).await;
    let early = now_s() < due;
    acked(&consumer, &found).await;
    println!("{} {}", bodies(&found), if early { "early" } else { "on time" });
}

async fn transaction(name: &str) {
    let mut option = ProducerOption::default();
    option.set_topics(vec![name]);
    let check = Box::new(|_, _| TransactionResolution::COMMIT);
    let mut sending = Producer::new_transaction_producer(option, options(), check).unwrap();
    sending.start().await.unwrap();
    for end in ["committed", "rolled-back", "checked"] {
        let made = MessageBuilder::transaction_message_builder(name, end.as_bytes().to_vec());
        let begun = sending.send_transaction_message(made.build().unwrap()).await.unwrap();
        match end {
            "committed" => begun.commit().await.unwrap(),
            "rolled-back" => begun.rollback().await.unwrap(),
            _ => {}
        }
    }
    let consumer = try_simple(name, name).await.unwrap();
    let found = received(&consumer, name, 2, 30).await;
    acked(&consumer, &found).await;
    println!("{}", bodies(&found));
}

async fn restart(name: &str) {
    let sending = producer(name).await;
    assert!(send(&sending, name, "body-0").await);
    let consumer = try_simple(name, name).await.unwrap();
    let mut found = received(&consumer, name, 1, 30).await;
    acked(&consumer, &found).await;
    println!("restart now");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    for number in 1..6 {
        until(|| async { send(&sending, name, &format!("body-{number}")).await }).await;
    }
    while bodies(&found).split(' ').collect::<HashSet<_>>().len() < 6 {
        let more = received(&consumer, name, 1, 30).await;
        acked(&consumer, &more).await;
        found.extend(more);
    }
    println!("{}", bodies(&found));
}

#[tokio::main]
async fn main() {
    let word = std::env::args().nth(2).unwrap();
    for chosen in std::env::args().skip(3) {
        println!("== {chosen}");
        let name = format!("{word}-{chosen}");
        match chosen.as_str() {
            "push" => println!("this client has no push consumer"),
            "normal" => normal(&name).await,
            "again" => again(&name).await,
            "dlq" => dlq(&name).await,
            "fifo" => fifo(&name).await,
            "delay" => delay(&name).await,
            "transaction" => transaction(&name).await,
            "restart" => restart(&name).await,
            _ => panic!("no scenario {chosen}"),
        }
    }
    println!("== end");
}
