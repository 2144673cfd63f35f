import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.function.Predicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** Scenarios with RocketMQ's Java client 5: {@code Scenarios5 HOST:PORT WORD SCENARIO…}; see scenarios.py beside it. */
public class Scenarios5 {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final long WAIT_MS = 90_000;
    static final int COUNT = 20;
    static final int WARM = 500;
    static final int SPEED_COUNT = 1_000;
    static final String KEY = System.getenv("ACCESS_KEY");
    static final String SECRET = System.getenv("SECRET_KEY");
    static String endpoint;
    static ClientConfiguration configuration;

    interface Scenario {
        void play(String name) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Thread.currentThread().setUncaughtExceptionHandler((thread, error) -> {  // other threads would live on
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        endpoint = arguments[0];
        configuration = configured(KEY, SECRET);
        Map<String, Scenario> scenarios = Map.of(
            "normal", Scenarios5::normal, "again", Scenarios5::again, "push", Scenarios5::push,
            "dlq", Scenarios5::dlq, "fifo", Scenarios5::fifo, "delay", Scenarios5::delay,
            "transaction", Scenarios5::transaction, "restart", Scenarios5::restart, "speed", Scenarios5::speed,
            "keys", Scenarios5::keys);
        for (int number = 2; number < arguments.length; number++) {
            said("== " + arguments[number]);
            scenarios.get(arguments[number]).play(arguments[1] + "-" + arguments[number]);
        }
        said("== end");
        Runtime.getRuntime().halt(0);  // a push consumer's end waits for the end of its long poll
    }

    static ClientConfiguration configured(String key, String secret) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(endpoint)
            .enableSsl(System.getenv("WITH_TLS") != null);
        if (key != null) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(key, secret));
        }
        return builder.build();
    }

    static void said(String text) {
        System.out.println(text);
        System.out.flush();
    }

    static Producer producer(String topic) throws Exception {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
    }

    static SimpleConsumer simple(String topic, String group, int waitS) throws Exception {
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(waitS))
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).build();
    }

    static PushConsumer pushed(String topic, String group, Predicate<MessageView> handle) throws Exception {
        return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .setMessageListener(each -> handle.test(each) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE).build();
    }

    static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static String body(MessageView message) {
        ByteBuffer body = message.getBody();
        return StandardCharsets.UTF_8.decode(body).toString();
    }

    static void until(Callable<Boolean> condition) throws Exception {
        long end = System.currentTimeMillis() + WAIT_MS;
        while (!condition.call()) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("what was waited for did not come");
            }
            Thread.sleep(50);
        }
    }

    static List<MessageView> received(SimpleConsumer consumer, int count, int invisibleS) throws Exception {
        List<MessageView> found = new ArrayList<>();
        until(() -> {
            found.addAll(consumer.receive(32, Duration.ofSeconds(invisibleS)));
            return found.size() >= count;
        });
        return found;
    }

    static void acked(SimpleConsumer consumer, List<MessageView> found) throws Exception {
        for (MessageView each : found) {
            consumer.ack(each);
        }
    }

    static String bodies(List<MessageView> found) {
        return found.stream().map(Scenarios5::body).sorted().collect(Collectors.joining(" "));
    }

    static void normal(String name) throws Exception {
        try (Producer sending = producer(name)) {
            for (int number = 0; number < COUNT; number++) {
                sending.send(message(name, "body-" + number).setTag("tea").setKeys("k-" + number)
                    .addProperty("p", "v-" + number).build());
            }
        }
        try (SimpleConsumer consumer = simple(name, name, 3)) {
            List<MessageView> found = received(consumer, COUNT, 30);
            acked(consumer, found);
            TreeSet<String> ids = new TreeSet<>();
            TreeSet<Integer> attempts = new TreeSet<>();
            for (MessageView each : found) {
                ids.add(each.getMessageId().toString());
                attempts.add(each.getDeliveryAttempt());
            }
            said(ids.size() + " messages, attempts " + attempts.toString().replace('[', '{').replace(']', '}'));
            for (MessageView each : found) {
                if (body(each).equals("body-7")) {
                    said(each.getTag().get() + " " + String.join(" ", each.getKeys()) + " "
                        + each.getProperties().get("p"));
                }
            }
            said("then " + consumer.receive(32, Duration.ofSeconds(30)).size());
        }
    }

    /** With access control: a user has rights to this topic and group, and may read the topic NAME-read. */
    static void keys(String name) throws Exception {
        try (Producer sending = producer(name)) {
            sending.send(message(name, "allowed").build());
        }
        try (SimpleConsumer consumer = simple(name, name, 3)) {
            List<MessageView> found = received(consumer, 1, 30);
            acked(consumer, found);
            said("got " + bodies(found));
        }
        ClientConfiguration right = configuration;
        configuration = configured(KEY, "another-secret");
        refusal("wrong secret", () -> sends(name, name));
        configuration = configured("nobody", SECRET);
        refusal("no such user", () -> sends(name, name));
        configuration = right;
        refusal("topic to read", () -> sends(name, name + "-read"));
        refusal("foreign group", () -> {
            try (SimpleConsumer consumer = simple(name, "foreign", 3)) {
                consumer.receive(32, Duration.ofSeconds(30));
            }
            return null;
        });
    }

    static Void sends(String name, String topic) throws Exception {
        try (Producer sending = producer(name)) {
            sending.send(message(topic, "refused").build());
        }
        return null;
    }

    /** The code that the server refused it with; this client has it in the texts of its exceptions alone. */
    static void refusal(String what, Callable<Void> action) {
        String told = "allowed";
        try {
            action.call();
        } catch (Exception error) {
            told = error instanceof IllegalStateException ? "not started" : error.toString();
            for (Throwable each = error; each != null; each = each.getCause()) {
                Matcher code = Pattern.compile("response-code=(\\d+)").matcher(each.toString());
                told = code.find() ? code.group(1) : told;
            }
        }
        said(what + " " + told);
    }

    /** For a benchmark, as in scenarios.py; a JVM needs longer until its code is compiled. */
    static void speed(String name) throws Exception {
        String text = "x".repeat(1024);
        try (Producer sending = producer(name)) {
            List<Long> took = new ArrayList<>();
            for (int number = 0; number < WARM + SPEED_COUNT; number++) {
                long began = System.nanoTime();
                sending.send(message(name, text).build());
                took.add(System.nanoTime() - began);
            }
            measured("sent", took.subList(WARM, took.size()));
        }
        try (SimpleConsumer consumer = simple(name, name, 5)) {
            List<Long> receivedIn = new ArrayList<>();
            List<Long> ackedIn = new ArrayList<>();
            long start = System.nanoTime();
            while (ackedIn.size() < WARM + SPEED_COUNT) {
                long began = System.nanoTime();
                List<MessageView> found = consumer.receive(32, Duration.ofSeconds(60));
                receivedIn.add(System.nanoTime() - began);
                for (MessageView each : found) {
                    began = System.nanoTime();
                    consumer.ack(each);
                    ackedIn.add(System.nanoTime() - began);
                }
            }
            double seconds = (System.nanoTime() - start) / 1e9;
            said(String.format("received %.1f %.3f", ackedIn.size() / seconds, median(receivedIn)));
            measured("acknowledged", ackedIn.subList(WARM, ackedIn.size()));
        }
    }

    static void measured(String what, List<Long> took) {
        double seconds = took.stream().mapToLong(Long::longValue).sum() / 1e9;
        said(String.format("%s %.1f %.3f", what, took.size() / seconds, median(took)));
    }

    static double median(List<Long> took) {
        return took.stream().sorted().skip(took.size() / 2).findFirst().get() / 1e6;
    }

    static void again(String name) throws Exception {
        try (Producer sending = producer(name)) {
            sending.send(message(name, "back").build());
            sending.send(message(name, "over").build());
        }
        try (SimpleConsumer consumer = simple(name, name, 5)) {
            for (MessageView each : received(consumer, 2, 10)) {
                if (body(each).equals("back")) {
                    consumer.changeInvisibleDuration(each, Duration.ofSeconds(1));
                }
            }
            List<MessageView> found = received(consumer, 2, 30);
            acked(consumer, found);
            found.sort(Comparator.comparing(Scenarios5::body));
            for (MessageView each : found) {
                said(body(each) + " " + each.getDeliveryAttempt());
            }
        }
    }

    static void push(String name) throws Exception {
        Map<String, List<Integer>> attempts = Collections.synchronizedMap(new TreeMap<>());
        Producer sending = producer(name);
        for (int number = 0; number < COUNT; number++) {
            sending.send(message(name, "good-" + number).build());
        }
        sending.send(message(name, "bad").build());
        pushed(name, name, each -> {
            attempts.computeIfAbsent(body(each), body -> new ArrayList<>()).add(each.getDeliveryAttempt());
            return !body(each).equals("bad") || each.getDeliveryAttempt() > 1;
        });
        until(() -> attempts.size() == COUNT + 1 && attempts.get("bad").size() == 2);
        List<Integer> bad = attempts.remove("bad");
        TreeSet<String> good = new TreeSet<>();
        attempts.values().forEach(each -> good.add("(" + each.get(0) + ",)"));
        said(COUNT + 1 + " messages, bad " + bad.get(0) + " " + bad.get(1) + " good {" + String.join(" ", good) + "}");
        sending.close();
    }

    static void dlq(String name) throws Exception {
        List<Integer> attempts = Collections.synchronizedList(new ArrayList<>());
        try (Producer sending = producer(name)) {
            sending.send(message(name, "poison").build());
        }
        pushed(name, name, each -> {
            attempts.add(each.getDeliveryAttempt());
            return false;
        });
        until(() -> attempts.size() == 2);
        List<SimpleConsumer> letters = new ArrayList<>();
        until(() -> {
            try {
                return letters.add(simple("%DLQ%" + name, name + "-letters", 3));
            } catch (Exception notThere) {  // the topic is made with its first letter
                return false;
            }
        });
        List<MessageView> found = received(letters.get(0), 1, 30);
        acked(letters.get(0), found);
        said("attempts " + attempts.get(0) + " " + attempts.get(1) + " letter " + bodies(found));
        letters.get(0).close();
    }

    static void fifo(String name) throws Exception {
        Map<String, List<String>> orders = new TreeMap<>();
        int[] total = {0};
        try (Producer sending = producer(name)) {
            for (int number = 0; number < 10; number++) {
                for (String group : List.of("a", "b")) {
                    sending.send(message(name, String.valueOf(number)).setMessageGroup(group).build());
                }
            }
        }
        pushed(name, name, each -> {
            synchronized (orders) {
                orders.computeIfAbsent(each.getMessageGroup().get(), group -> new ArrayList<>()).add(body(each));
                total[0]++;
                return true;
            }
        });
        until(() -> {
            synchronized (orders) {
                return total[0] >= 20;
            }
        });
        synchronized (orders) {
            orders.forEach((group, bodies) -> said(group + " " + String.join(" ", bodies)));
        }
    }

    static void delay(String name) throws Exception {
        long due = System.currentTimeMillis() + 4_000;
        try (Producer sending = producer(name)) {
            sending.send(message(name, "later").setDeliveryTimestamp(due).build());
        }
        try (SimpleConsumer consumer = simple(name, name, 5)) {
            List<MessageView> found = received(consumer, 1, 30);
            boolean early = System.currentTimeMillis() < due;
            acked(consumer, found);
            said(bodies(found) + (early ? " early" : " on time"));
        }
    }

    static void transaction(String name) throws Exception {
        ProducerBuilder builder = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(name);
        try (Producer sending = builder.setTransactionChecker(each -> TransactionResolution.COMMIT).build()) {
            for (String end : List.of("committed", "rolled-back", "checked")) {
                Transaction begun = sending.beginTransaction();
                Message made = message(name, end).build();
                sending.send(made, begun);
                if (end.equals("committed")) {
                    begun.commit();
                } else if (end.equals("rolled-back")) {
                    begun.rollback();
                }
            }
            try (SimpleConsumer consumer = simple(name, name, 5)) {
                List<MessageView> found = received(consumer, 2, 30);
                acked(consumer, found);
                said(bodies(found));
            }
        }
    }

    static void restart(String name) throws Exception {
        TreeSet<String> seen = new TreeSet<>();
        Callable<Integer> number = () -> {
            synchronized (seen) {
                return seen.size();
            }
        };
        Producer sending = producer(name);
        sent(sending, name, 0);
        pushed(name, name, each -> {
            synchronized (seen) {
                return seen.add(body(each)) || true;
            }
        });
        until(() -> number.call() == 1);
        said("restart now");
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        for (int each = 1; each < 6; each++) {
            sent(sending, name, each);
        }
        until(() -> number.call() == 6);
        synchronized (seen) {
            said(String.join(" ", seen));
        }
    }

    static void sent(Producer sending, String name, int number) throws Exception {
        until(() -> {
            try {
                sending.send(message(name, "body-" + number).build());
                return true;
            } catch (Exception notBack) {
                return false;
            }
        });
    }
}
