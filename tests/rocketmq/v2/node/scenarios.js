// Scenarios with RocketMQ's Node client: `node scenarios.js HOST:PORT WORD SCENARIO…`; see scenarios.py beside it.
'use strict';

const { once } = require('node:events');
const { Producer, PushConsumer, SimpleConsumer, ConsumeResult, FilterExpression } = require('rocketmq-client-nodejs');

const [endpoints, word, ...chosen] = process.argv.slice(2);
const WAIT_MS = 90_000;
const COUNT = 20;
const silent = { log() {}, info() {}, warn() {}, error() {}, debug() {} };
const COMMIT = 1;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const said = (...words) => process.stdout.write(`${words.join(' ')}\n`);
const body = (message) => message.body.toString();
const bodies = (found) => found.map(body).sort().join(' ');
const { ACCESS_KEY: accessKey, SECRET_KEY: accessSecret, WITH_TLS } = process.env;
const common = () => ({
  endpoints, namespace: '', logger: silent, sslEnabled: Boolean(WITH_TLS),
  ...(accessKey && { sessionCredentials: { accessKey, accessSecret } }),
});

async function started(client) {
  await client.startup();
  return client;
}

function producer(topic, more = {}) {
  return started(new Producer({ ...common(), topic, ...more }));
}

function simple(topic, group, waitS = 3) {
  return started(new SimpleConsumer({
    ...common(), consumerGroup: group, awaitDuration: waitS * 1000,
    subscriptions: new Map([[topic, FilterExpression.SUB_ALL]]),
  }));
}

function push(topic, group, handle) {
  const messageListener = {
    async consume(message) {
      return handle(message) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
    },
  };
  return started(new PushConsumer({
    ...common(), consumerGroup: group, subscriptions: new Map([[topic, FilterExpression.SUB_ALL]]), messageListener,
  }));
}

function message(topic, text, more = {}) {
  return { topic, body: Buffer.from(text), ...more };
}

async function until(condition) {
  for (const end = Date.now() + WAIT_MS; !(await condition()); await pause(50)) {
    if (Date.now() > end) throw new Error('what was waited for did not come');
  }
}

async function received(consumer, count, invisibleS = 30) {
  const found = [];
  await until(async () => {
    found.push(...await consumer.receive(32, invisibleS * 1000));
    return found.length >= count;
  });
  return found;
}

async function acked(consumer, found) {
  for (const each of found) await consumer.ack(each);
}

async function normal(name) {
  const sending = await producer(name);
  for (let number = 0; number < COUNT; number++) {
    const properties = new Map([['p', `v-${number}`]]);
    await sending.send(message(name, `body-${number}`, { tag: 'tea', keys: [`k-${number}`], properties }));
  }
  const consumer = await simple(name, name);
  const found = await received(consumer, COUNT);
  await acked(consumer, found);
  const ids = new Set(found.map((each) => each.messageId));
  const attempts = new Set(found.map((each) => each.deliveryAttempt));
  said(`${ids.size} messages, attempts {${[...attempts].join(', ')}}`);
  const one = found.find((each) => body(each) === 'body-7');
  said(one.tag, ...one.keys, one.properties.get('p'));
  said('then', (await consumer.receive(32, 30_000)).length);
}

async function again(name) {
  const sending = await producer(name);
  for (const text of ['back', 'over']) await sending.send(message(name, text));
  const consumer = await simple(name, name, 5);
  for (const each of await received(consumer, 2, 10)) {
    if (body(each) === 'back') await consumer.changeInvisibleDuration(each, 1000);
  }
  const found = await received(consumer, 2);
  await acked(consumer, found);
  found.sort((one, other) => (body(one) < body(other) ? -1 : 1));
  for (const each of found) said(body(each), each.deliveryAttempt);
}

async function pushed(name) {
  const bad = [];
  const good = new Map();
  const sending = await producer(name);
  for (let number = 0; number < COUNT; number++) await sending.send(message(name, `good-${number}`));
  await sending.send(message(name, 'bad'));
  await push(name, name, (each) => {
    if (body(each) !== 'bad') {
      good.set(body(each), (good.get(body(each)) || 0) + each.deliveryAttempt);
      return true;
    }
    bad.push(each.deliveryAttempt);
    return each.deliveryAttempt > 1;
  });
  await until(() => good.size === COUNT && bad.length === 2);
  said(`${good.size + 1} messages, bad ${bad.join(' ')} good {(${[...new Set(good.values())].join(',')},)}`);
}

async function dlq(name) {
  const attempts = [];
  const sending = await producer(name);
  await sending.send(message(name, 'poison'));
  await push(name, name, (each) => {
    attempts.push(each.deliveryAttempt);
    return false;
  });
  await until(() => attempts.length === 2);
  let letters;
  await until(async () => {
    try {
      letters = await simple(`%DLQ%${name}`, `${name}-letters`);
    } catch { // the topic is made with its first letter
      await pause(300);
    }
    return letters;
  });
  const found = await received(letters, 1);
  await acked(letters, found);
  said('attempts', ...attempts, 'letter', bodies(found));
}

async function fifo(name) {
  const orders = { a: [], b: [] };
  const sending = await producer(name);
  for (let number = 0; number < 10; number++) {
    for (const messageGroup of ['a', 'b']) await sending.send(message(name, `${number}`, { messageGroup }));
  }
  await push(name, name, (each) => {
    orders[each.messageGroup].push(body(each));
    return true;
  });
  await until(() => orders.a.length + orders.b.length >= 20);
  for (const group of ['a', 'b']) said(group, ...orders[group]);
}

async function delay(name) {
  const sending = await producer(name);
  const due = Date.now() + 4000;
  await sending.send(message(name, 'later', { deliveryTimestamp: new Date(due) }));
  const consumer = await simple(name, name, 5);
  const found = await received(consumer, 1);
  const early = Date.now() < due;
  await acked(consumer, found);
  said(bodies(found), early ? 'early' : 'on time');
}

async function transaction(name) {
  const checker = { async check() { return COMMIT; } };
  const sending = await producer(name, { checker });
  for (const end of ['committed', 'rolled-back', 'checked']) {
    const begun = sending.beginTransaction();
    await sending.send(message(name, end), begun);
    if (end === 'committed') await begun.commit();
    else if (end === 'rolled-back') await begun.rollback();
  }
  const consumer = await simple(name, name, 5);
  const found = await received(consumer, 2);
  await acked(consumer, found);
  said(bodies(found));
}

async function restart(name) {
  const seen = new Set();
  const sending = await producer(name);
  const sent = (number) => until(async () => {
    try {
      await sending.send(message(name, `body-${number}`));
      return true;
    } catch { // the server is not back yet
      await pause(500);
      return false;
    }
  });
  await sent(0);
  await push(name, name, (each) => seen.add(body(each)));
  await until(() => seen.size === 1);
  said('restart now');
  await once(process.stdin, 'data');
  for (let number = 1; number < 6; number++) await sent(number);
  await until(() => seen.size === 6);
  said(...[...seen].sort());
}

// With access control: a user has rights to this topic and group, and may read the topic NAME-read.
async function keys(name) {
  const sending = await producer(name);
  await sending.send(message(name, 'allowed'));
  const consumer = await simple(name, name, 5);
  const found = await received(consumer, 1);
  await acked(consumer, found);
  said('got', bodies(found));
  const sent = async (topic, sessionCredentials) => {
    const refused = await producer(name, { sessionCredentials });
    await refused.send(message(topic, 'refused'));
  };
  const right = { accessKey, accessSecret };
  const got = async () => (await simple(name, 'foreign')).receive(32, 30_000);
  const told = await Promise.all([
    refusal('wrong secret', sent(name, { accessKey, accessSecret: 'another-secret' })),
    refusal('no such user', sent(name, { accessKey: 'nobody', accessSecret })),
    refusal('topic to read', sent(`${name}-read`, right)),
    refusal('foreign group', got()),
  ]);
  said(told.join('\n'));
}

// The code that the server refused it with. This client hides that of a route behind words of its own.
async function refusal(what, action) {
  try {
    await action;
    return `${what} allowed`;
  } catch (error) {
    const hidden = String(error).includes('Failed to fetch topic routes') ? 'no route' : error;
    const [, told] = /response-code=(\d+)/.exec(error) || [];
    return `${what} ${told || hidden}`;
  }
}

async function main() {
  const scenarios = { normal, again, push: pushed, dlq, fifo, delay, transaction, restart, keys };
  for (const name of chosen) {
    said('==', name);
    await scenarios[name](`${word}-${name}`);
  }
  said('== end');
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
