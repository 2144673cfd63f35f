// What a program does with RocketMQ's own Go client, printed so that two brokers can be compared.
//
// Arguments: the name server, a word that makes names unique, then the scenarios.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const patience = 90 * time.Second

var namesrv, word string
var right = primitive.Credentials{AccessKey: os.Getenv("ACCESS_KEY"), SecretKey: os.Getenv("SECRET_KEY")}

func main() {
	rlog.SetLogLevel("fatal")
	namesrv, word = os.Args[1], os.Args[2]
	scenarios := map[string]func(topic, group string) error{
		"sync": syncSends, "batch": batch, "oneway": oneway, "async": async,
		"concurrent": concurrent, "ordered": ordered, "tags": tags, "retry": retry,
		"pull": pull, "poll": poll, "admin": administer, "keys": locked,
	}
	for tries := 0; tries < 60 && send(word+"_warm", "", 1) != nil; tries++ { // a server that has just started
		time.Sleep(500 * time.Millisecond)
	}
	for _, name := range os.Args[3:] {
		fmt.Println("== " + name)
		topic := word + "_" + name
		if err := scenarios[name](topic, topic+"_group"); err != nil {
			fmt.Println("error", err)
		}
	}
	fmt.Println("== end")
}

func newProducer(group string) (rocketmq.Producer, error) {
	return newProducerOf(group, right)
}

func newProducerOf(group string, keys primitive.Credentials) (rocketmq.Producer, error) {
	made, err := rocketmq.NewProducer(producer.WithCredentials(keys),
		producer.WithNameServer([]string{namesrv}), producer.WithGroupName(group), producer.WithRetry(2),
		producer.WithInstanceName(group), producer.WithSendMsgTimeout(10*time.Second),
	)
	if err != nil {
		return nil, err
	}
	return made, made.Start()
}

func message(topic string, number int) *primitive.Message {
	made := primitive.NewMessage(topic, []byte("body "+strconv.Itoa(number)))
	made.WithKeys([]string{"key" + strconv.Itoa(number)})
	made.WithProperty("color", "red")
	return made
}

func send(topic, tag string, count int) error {
	made, err := newProducer(topic + "_p")
	if err != nil {
		return err
	}
	defer made.Shutdown()
	for number := 0; number < count; number++ {
		each := message(topic, number)
		if tag != "" {
			each.WithTag(tag)
		}
		if _, err := made.SendSync(context.Background(), each); err != nil {
			return err
		}
	}
	return nil
}

func syncSends(topic, group string) error {
	made, err := newProducer(group)
	if err != nil {
		return err
	}
	defer made.Shutdown()
	for number := 0; number < 3; number++ {
		result, err := made.SendSync(context.Background(), message(topic, number))
		if err != nil {
			return err
		}
		fmt.Println(result.Status, len(result.MsgID), len(result.OffsetMsgID), result.RegionID, result.TraceOn)
	}
	print(read(topic, group+"_r", consumer.MessageSelector{}, 3))
	return nil
}

func batch(topic, group string) error {
	made, err := newProducer(group)
	if err != nil {
		return err
	}
	defer made.Shutdown()
	messages := []*primitive.Message{message(topic, 0), message(topic, 1), message(topic, 2)}
	result, err := made.SendSync(context.Background(), messages...)
	if err != nil {
		return err
	}
	fmt.Println(result.Status, result.QueueOffset)
	print(read(topic, group+"_r", consumer.MessageSelector{}, 3))
	return nil
}

func oneway(topic, group string) error {
	if err := send(topic, "", 1); err != nil { // a oneway send is not answered, so nobody knows when its topic is made
		return err
	}
	made, err := newProducer(group)
	if err != nil {
		return err
	}
	defer made.Shutdown()
	for number := 0; number < 5; number++ {
		if err := made.SendOneWay(context.Background(), message(topic, number)); err != nil {
			return err
		}
	}
	print(read(topic, group+"_r", consumer.MessageSelector{}, 6))
	return nil
}

func async(topic, group string) error {
	made, err := newProducer(group)
	if err != nil {
		return err
	}
	defer made.Shutdown()
	var done sync.WaitGroup
	for number := 0; number < 10; number++ {
		done.Add(1)
		told := func(_ context.Context, result *primitive.SendResult, err error) {
			if err != nil {
				fmt.Println("error", err)
			}
			done.Done()
		}
		if err := made.SendAsync(context.Background(), told, message(topic, number)); err != nil {
			return err
		}
	}
	done.Wait()
	fmt.Println("sent")
	return nil
}

func concurrent(topic, group string) error {
	if err := send(topic, "", 20); err != nil {
		return err
	}
	fmt.Println(len(read(topic, group, consumer.MessageSelector{}, 20)))
	if err := send(topic, "", 5); err != nil {
		return err
	}
	fmt.Println("goes on", len(read(topic, group, consumer.MessageSelector{}, 5)) < 20) // one may come again
	return nil
}

func tags(topic, group string) error {
	for _, tag := range []string{"paid", "sent", "lost"} {
		if err := send(topic, tag, 2); err != nil {
			return err
		}
	}
	print(read(topic, group, consumer.MessageSelector{Type: consumer.TAG, Expression: "paid || sent"}, 4))
	return nil
}

func ordered(topic, group string) error {
	made, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{namesrv}), producer.WithGroupName(group+"_p"),
		producer.WithInstanceName(group+"_p"), producer.WithQueueSelector(producer.NewHashQueueSelector()),
	)
	if err != nil {
		return err
	}
	if err := made.Start(); err != nil {
		return err
	}
	for number := 0; number < 12; number++ {
		each := message(topic, number)
		each.WithShardingKey("key" + strconv.Itoa(number%2))
		if _, err := made.SendSync(context.Background(), each); err != nil {
			return err
		}
	}
	made.Shutdown()
	byQueue := map[int][]string{}
	for _, each := range read(topic, group, consumer.MessageSelector{}, 12, consumer.WithConsumerOrder(true)) {
		byQueue[each.Queue.QueueId] = append(byQueue[each.Queue.QueueId], string(each.Body))
	}
	fmt.Println(byQueue)
	return nil
}

func retry(topic, group string) error {
	if err := send(topic, "", 1); err != nil {
		return err
	}
	made, err := newConsumer(group)
	if err != nil {
		return err
	}
	done := make(chan int32, 10)
	err = made.Subscribe(topic, consumer.MessageSelector{},
		func(_ context.Context, found ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			done <- found[0].ReconsumeTimes
			if found[0].ReconsumeTimes > 0 {
				return consumer.ConsumeSuccess, nil
			}
			return consumer.ConsumeRetryLater, nil
		})
	if err != nil {
		return err
	}
	if err := made.Start(); err != nil {
		return err
	}
	defer made.Shutdown()
	for try := 0; try < 2; try++ {
		select {
		case times := <-done:
			fmt.Println("try", times)
		case <-time.After(patience):
			fmt.Println("no try", try)
		}
	}
	return nil
}

// pull asks for each queue by offset: from its start, past its end, and from where a client of the same group left off.
func pull(topic, group string) error {
	if err := send(topic, "paid", 8); err != nil {
		return err
	}
	made, err := newPullConsumer(topic, group, consumer.MessageSelector{})
	if err != nil {
		return err
	}
	queues, err := queuesOf(topic)
	if err != nil {
		return err
	}
	var found []*primitive.MessageExt
	for _, queue := range queues {
		result, err := made.PullFrom(context.Background(), queue, 0, 32)
		if err != nil {
			return err
		}
		found = append(found, result.GetMessageExts()...)
		fmt.Println(queue.QueueId, "found", result.Status == primitive.PullFound, result.MinOffset,
			result.NextBeginOffset == result.MaxOffset, result.MaxOffset == int64(len(result.GetMessageExts())))
		past, err := made.PullFrom(context.Background(), queue, result.MaxOffset+100, 32)
		if err != nil {
			return err
		}
		fmt.Println("past the end", past.Status == primitive.PullOffsetIllegal, past.NextBeginOffset == result.MaxOffset)
		if err := made.UpdateOffset(queue, result.NextBeginOffset); err != nil {
			return err
		}
	}
	print(found)
	if err := made.PersistOffset(context.Background(), topic); err != nil {
		return err
	}
	return made.Shutdown()
}

// poll takes batches that were pulled in the background, and acknowledges them.
func poll(topic, group string) error {
	if err := send(topic, "paid", 6); err != nil {
		return err
	}
	if err := send(topic, "sent", 2); err != nil {
		return err
	}
	made, err := newPullConsumer(topic, group, consumer.MessageSelector{Type: consumer.TAG, Expression: "paid"})
	if err != nil {
		return err
	}
	var found []*primitive.MessageExt
	for end := time.Now().Add(patience); len(found) < 6 && time.Now().Before(end); {
		polled, err := made.Poll(context.Background(), 5*time.Second)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return err
		}
		found = append(found, polled.GetMsgList()...)
		made.ACK(context.Background(), polled, consumer.ConsumeSuccess)
	}
	print(found)
	return made.Shutdown()
}

func newPullConsumer(topic, group string, wanted consumer.MessageSelector) (rocketmq.PullConsumer, error) {
	made, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer([]string{namesrv}), consumer.WithGroupName(group), consumer.WithInstance(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	if err := made.Subscribe(topic, wanted); err != nil {
		return nil, err
	}
	return made, made.Start()
}

func newAdmin() (admin.Admin, error) {
	return admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{namesrv})))
}

func queuesOf(topic string) ([]*primitive.MessageQueue, error) {
	made, err := newAdmin()
	if err != nil {
		return nil, err
	}
	defer made.Close()
	return made.FetchPublishMessageQueues(context.Background(), topic)
}

// administer makes a topic, finds it, reads the settings of groups, and deletes the topic.
func administer(topic, group string) error {
	broker, err := brokerOf(word + "_warm")
	if err != nil {
		return err
	}
	made, err := newAdmin()
	if err != nil {
		return err
	}
	defer made.Close()
	err = made.CreateTopic(context.Background(), admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(broker),
		admin.WithReadQueueNums(3), admin.WithWriteQueueNums(3))
	if err != nil {
		return err
	}
	queues, err := made.FetchPublishMessageQueues(context.Background(), topic)
	for tries := 0; tries < 60 && err != nil; tries++ { // until its name server knows of it
		time.Sleep(500 * time.Millisecond)
		queues, err = made.FetchPublishMessageQueues(context.Background(), topic)
	}
	fmt.Println("queues", queues, err)
	if err := listed(made, topic); err != nil {
		return err
	}
	read(word+"_warm", group, consumer.MessageSelector{}, 1) // so that the group is there
	groups, err := made.GetAllSubscriptionGroup(context.Background(), broker, 10*time.Second)
	if err != nil {
		return err
	}
	fmt.Printf("%+v\n", groups.SubscriptionGroupTable[group])
	if err := made.DeleteTopic(context.Background(), admin.WithTopicDelete(topic)); err != nil {
		return err
	}
	return listed(made, topic)
}

func listed(made admin.Admin, topic string) error {
	topics, err := made.FetchAllTopicList(context.Background())
	if err != nil {
		return err
	}
	for _, each := range topics.TopicList {
		if each == topic {
			fmt.Println("listed")
			return nil
		}
	}
	fmt.Println("not listed")
	return nil
}

// brokerOf gives the address of a broker, which is in the offset id of a message.
func brokerOf(topic string) (string, error) {
	made, err := newProducer(topic + "_p")
	if err != nil {
		return "", err
	}
	defer made.Shutdown()
	sent, err := made.SendSync(context.Background(), message(topic, 0))
	if err != nil {
		return "", err
	}
	id, err := primitive.UnmarshalMsgID([]byte(sent.OffsetMsgID))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s:%d", id.Addr, id.Port), nil
}

// locked is with access control: a user has rights to this topic and group, and may read the topic NAME_read.
func locked(topic, group string) error {
	if err := send(topic, "", 1); err != nil {
		return err
	}
	fmt.Println("got", len(read(topic, group, consumer.MessageSelector{}, 1)))
	tries := []struct {
		what, topic string
		keys        primitive.Credentials
	}{
		{"wrong secret", topic, primitive.Credentials{AccessKey: right.AccessKey, SecretKey: "another-secret"}},
		{"no such user", topic, primitive.Credentials{AccessKey: "nobody", SecretKey: right.SecretKey}},
		{"topic to read", topic + "_read", right},
	}
	for number, each := range tries {
		made, err := newProducerOf(fmt.Sprint(group, "_", number), each.keys)
		if err == nil {
			_, err = made.SendSync(context.Background(), message(each.topic, 0))
			made.Shutdown()
		}
		fmt.Println(each.what, err)
	}
	return nil
}

func newConsumer(group string, more ...consumer.Option) (rocketmq.PushConsumer, error) {
	options := append([]consumer.Option{
		consumer.WithNameServer([]string{namesrv}), consumer.WithGroupName(group),
		consumer.WithInstance(group), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithCredentials(right),
	}, more...)
	return rocketmq.NewPushConsumer(options...)
}

// read gives what a group of its own gets: this many messages, or fewer when time is up.
func read(topic, group string, wanted consumer.MessageSelector, count int, more ...consumer.Option) []*primitive.MessageExt {
	made, err := newConsumer(group, more...)
	if err != nil {
		fmt.Println("error", err)
		return nil
	}
	var lock sync.Mutex
	var all []*primitive.MessageExt
	done := make(chan struct{})
	err = made.Subscribe(topic, wanted,
		func(_ context.Context, found ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			lock.Lock()
			defer lock.Unlock()
			all = append(all, found...)
			if len(all) == count {
				close(done)
			}
			return consumer.ConsumeSuccess, nil
		})
	if err == nil {
		err = made.Start()
	}
	if err != nil {
		fmt.Println("error", err)
		return nil
	}
	select {
	case <-done:
	case <-time.After(patience):
	}
	made.Shutdown()
	lock.Lock()
	defer lock.Unlock()
	return all
}

func print(found []*primitive.MessageExt) {
	lines := []string{}
	for _, each := range found {
		lines = append(lines, fmt.Sprint(string(each.Body), " ", each.GetTags(), " ", each.GetKeys(), " ",
			each.GetProperty("color"), " ", each.ReconsumeTimes, " ", each.GetProperty("TRACE_ON")))
	}
	sort.Strings(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
}
