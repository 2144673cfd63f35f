// Scenarios with RocketMQ's Go client 5: `scenarios HOST:PORT WORD SCENARIO…`; see scenarios.py beside it.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	mq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const (
	wait  = 90 * time.Second
	count = 20
)

var endpoint, word = os.Args[1], os.Args[2]
var keys = &credentials.SessionCredentials{AccessKey: os.Getenv("ACCESS_KEY"), AccessSecret: os.Getenv("SECRET_KEY")}

func config(group string) *mq.Config {
	return &mq.Config{Endpoint: endpoint, ConsumerGroup: group, Credentials: keys}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func producer(topic string, options ...mq.ProducerOption) mq.Producer {
	made, err := mq.NewProducer(config(""), append(options, mq.WithTopics(topic))...)
	must(err)
	must(made.Start())
	return made
}

// trySimple fails while the topic is not there.
func trySimple(topic, group string, poll time.Duration) (mq.SimpleConsumer, error) {
	made, err := mq.NewSimpleConsumer(
		config(group), mq.WithSimpleAwaitDuration(poll),
		mq.WithSimpleSubscriptionExpressions(map[string]*mq.FilterExpression{topic: mq.SUB_ALL}),
	)
	if err == nil {
		err = made.Start()
	}
	return made, err
}

func simple(topic, group string) mq.SimpleConsumer {
	made, err := trySimple(topic, group, 3*time.Second)
	must(err)
	return made
}

func push(topic, group string, handle func(*mq.MessageView) bool) mq.PushConsumer {
	made, err := mq.NewPushConsumer(
		config(group), mq.WithPushAwaitDuration(5*time.Second),
		mq.WithPushSubscriptionExpressions(map[string]*mq.FilterExpression{topic: mq.SUB_ALL}),
		mq.WithPushMessageListener(&mq.FuncMessageListener{Consume: func(message *mq.MessageView) mq.ConsumerResult {
			if handle(message) {
				return mq.SUCCESS
			}
			return mq.FAILURE
		}}),
	)
	must(err)
	must(made.Start())
	return made
}

// stop waits for nobody: a consumer waits for the end of its long poll.
func stop(client interface{ GracefulStop() error }) {
	go func() { _ = client.GracefulStop() }()
}

func message(topic, body string) *mq.Message {
	return &mq.Message{Topic: topic, Body: []byte(body)}
}

func send(sending mq.Producer, made *mq.Message) {
	_, err := sending.Send(context.TODO(), made)
	must(err)
}

func body(message *mq.MessageView) string {
	return string(message.GetBody())
}

func until(condition func() bool) {
	for end := time.Now().Add(wait); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			panic("what was waited for did not come")
		}
	}
}

// receive gives nothing also for an error, which is how this client says that nothing came.
func receive(consumer mq.SimpleConsumer, invisible time.Duration) []*mq.MessageView {
	found, err := consumer.Receive(context.TODO(), 32, invisible)
	if err != nil {
		return nil
	}
	return found
}

func received(consumer mq.SimpleConsumer, least int, invisible time.Duration) []*mq.MessageView {
	var found []*mq.MessageView
	until(func() bool {
		found = append(found, receive(consumer, invisible)...)
		return len(found) >= least
	})
	return found
}

func acked(consumer mq.SimpleConsumer, found []*mq.MessageView) {
	for _, each := range found {
		must(consumer.Ack(context.TODO(), each))
	}
}

func bodies(found []*mq.MessageView) string {
	var all []string
	for _, each := range found {
		all = append(all, body(each))
	}
	sort.Strings(all)
	return strings.Join(all, " ")
}

func normal(name string) {
	sending := producer(name)
	defer stop(sending)
	for number := 0; number < count; number++ {
		made := message(name, fmt.Sprintf("body-%d", number))
		made.SetTag("tea")
		made.SetKeys(fmt.Sprintf("k-%d", number))
		made.AddProperty("p", fmt.Sprintf("v-%d", number))
		send(sending, made)
	}
	consumer := simple(name, name)
	defer stop(consumer)
	found := received(consumer, count, 30*time.Second)
	acked(consumer, found)
	ids, attempts := map[string]bool{}, map[int32]bool{}
	for _, each := range found {
		ids[each.GetMessageId()], attempts[each.GetDeliveryAttempt()] = true, true
	}
	fmt.Printf("%d messages, attempts {%d}\n", len(ids), oneOf(attempts))
	for _, each := range found {
		if body(each) == "body-7" {
			fmt.Println(*each.GetTag(), strings.Join(each.GetKeys(), " "), each.GetProperties()["p"])
		}
	}
	fmt.Println("then", len(receive(consumer, 30*time.Second)))
}

func oneOf(attempts map[int32]bool) int32 {
	if len(attempts) != 1 {
		return -1
	}
	for attempt := range attempts {
		return attempt
	}
	return -1
}

func again(name string) {
	sending := producer(name)
	defer stop(sending)
	send(sending, message(name, "back"))
	send(sending, message(name, "over"))
	consumer := simple(name, name)
	defer stop(consumer)
	for _, each := range received(consumer, 2, 10*time.Second) {
		if body(each) == "back" {
			must(consumer.ChangeInvisibleDuration(each, time.Second))
		}
	}
	found := received(consumer, 2, 30*time.Second)
	acked(consumer, found)
	sort.Slice(found, func(i, j int) bool { return body(found[i]) < body(found[j]) })
	for _, each := range found {
		fmt.Println(body(each), each.GetDeliveryAttempt())
	}
}

func pushed(name string) {
	var lock sync.Mutex
	bad, good := []int32{}, map[string]int32{}
	sending := producer(name)
	defer stop(sending)
	for number := 0; number < count; number++ {
		send(sending, message(name, fmt.Sprintf("good-%d", number)))
	}
	send(sending, message(name, "bad"))
	consumer := push(name, name, func(each *mq.MessageView) bool {
		lock.Lock()
		defer lock.Unlock()
		if body(each) == "bad" {
			bad = append(bad, each.GetDeliveryAttempt())
			return each.GetDeliveryAttempt() > 1
		}
		good[body(each)] += each.GetDeliveryAttempt()
		return true
	})
	defer stop(consumer)
	until(func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(good) == count && len(bad) == 2
	})
	once := map[int32]bool{}
	for _, attempts := range good {
		once[attempts] = true
	}
	fmt.Printf("%d messages, bad %d %d good {(%d,)}\n", len(good)+1, bad[0], bad[1], oneOf(once))
}

func dlq(name string) {
	var lock sync.Mutex
	var attempts []int32
	sending := producer(name)
	defer stop(sending)
	send(sending, message(name, "poison"))
	consumer := push(name, name, func(each *mq.MessageView) bool {
		lock.Lock()
		defer lock.Unlock()
		attempts = append(attempts, each.GetDeliveryAttempt())
		return false
	})
	defer stop(consumer)
	var letters mq.SimpleConsumer
	until(func() bool {
		made, err := trySimple("%DLQ%"+name, name+"-letters", 3*time.Second)
		letters = made
		return err == nil
	})
	defer stop(letters)
	found := received(letters, 1, 30*time.Second)
	acked(letters, found)
	fmt.Println("attempts", attempts[0], attempts[1], "letter", bodies(found))
}

func fifo(name string) {
	var lock sync.Mutex
	orders, total := map[string][]string{}, 0
	sending := producer(name)
	defer stop(sending)
	for number := 0; number < 10; number++ {
		for _, group := range []string{"a", "b"} {
			made := message(name, fmt.Sprint(number))
			made.SetMessageGroup(group)
			send(sending, made)
		}
	}
	consumer := push(name, name, func(each *mq.MessageView) bool {
		lock.Lock()
		defer lock.Unlock()
		group := *each.GetMessageGroup()
		orders[group] = append(orders[group], body(each))
		total++
		return true
	})
	defer stop(consumer)
	until(func() bool {
		lock.Lock()
		defer lock.Unlock()
		return total >= 20
	})
	for _, group := range []string{"a", "b"} {
		fmt.Println(group, strings.Join(orders[group], " "))
	}
}

func delay(name string) {
	sending := producer(name)
	defer stop(sending)
	due := time.Now().Add(4 * time.Second)
	made := message(name, "later")
	made.SetDelayTimestamp(due)
	send(sending, made)
	consumer := simple(name, name)
	defer stop(consumer)
	found := received(consumer, 1, 30*time.Second)
	early := time.Now().Before(due)
	acked(consumer, found)
	fmt.Println(bodies(found), map[bool]string{true: "early", false: "on time"}[early])
}

func transaction(name string) {
	sending := producer(name, mq.WithTransactionChecker(&mq.TransactionChecker{
		Check: func(*mq.MessageView) mq.TransactionResolution { return mq.COMMIT },
	}))
	defer stop(sending)
	for _, end := range []string{"committed", "rolled-back", "checked"} {
		begun := sending.BeginTransaction()
		_, err := sending.SendWithTransaction(context.TODO(), message(name, end), begun)
		must(err)
		switch end {
		case "committed":
			must(begun.Commit())
		case "rolled-back":
			must(begun.RollBack())
		}
	}
	consumer := simple(name, name)
	defer stop(consumer)
	found := received(consumer, 2, 30*time.Second)
	acked(consumer, found)
	fmt.Println(bodies(found))
}

func restart(name string) {
	var lock sync.Mutex
	seen := map[string]bool{}
	number := func() int {
		lock.Lock()
		defer lock.Unlock()
		return len(seen)
	}
	sending := producer(name)
	defer stop(sending)
	sent := func(number int) {
		until(func() bool {
			_, err := sending.Send(context.TODO(), message(name, fmt.Sprintf("body-%d", number)))
			return err == nil
		})
	}
	sent(0)
	consumer := push(name, name, func(each *mq.MessageView) bool {
		lock.Lock()
		defer lock.Unlock()
		seen[body(each)] = true
		return true
	})
	defer stop(consumer)
	until(func() bool { return number() == 1 })
	fmt.Println("restart now")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	for number := 1; number < 6; number++ {
		sent(number)
	}
	until(func() bool { return number() == 6 })
	var all []string
	for each := range seen {
		all = append(all, each)
	}
	sort.Strings(all)
	fmt.Println(strings.Join(all, " "))
}

// locked is with access control: a user has rights to this topic and group, and may read the topic NAME-read.
func locked(name string) {
	sending := producer(name)
	send(sending, message(name, "allowed"))
	consumer := simple(name, name)
	found := received(consumer, 1, 30*time.Second)
	acked(consumer, found)
	fmt.Println("got", bodies(found))
	stop(sending)
	stop(consumer)
	right := keys
	sent := func(topic string, given *credentials.SessionCredentials) error {
		keys = given
		defer func() { keys = right }()
		made, err := mq.NewProducer(config(""), mq.WithTopics(name))
		if err == nil {
			err = made.Start()
		}
		if err == nil {
			_, err = made.Send(context.TODO(), message(topic, "refused"))
		}
		return err
	}
	wrong := &credentials.SessionCredentials{AccessKey: right.AccessKey, AccessSecret: "another-secret"}
	nobody := &credentials.SessionCredentials{AccessKey: "nobody", AccessSecret: right.AccessSecret}
	fmt.Println("wrong secret", refusal(sent(name, wrong)))
	fmt.Println("no such user", refusal(sent(name, nobody)))
	fmt.Println("topic to read", refusal(sent(name+"-read", right)))
	foreign, err := trySimple(name, "foreign", 3*time.Second)
	if err == nil {
		_, err = foreign.Receive(context.TODO(), 32, 30*time.Second)
	}
	fmt.Println("foreign group", refusal(err))
}

// refusal is the code that the server refused it with; errors of a start have it in their text alone.
func refusal(err error) string {
	if err == nil {
		return "allowed"
	}
	if status, ok := mq.AsErrRpcStatus(err); ok {
		return fmt.Sprint(status.GetCode())
	}
	if strings.Contains(err.Error(), "CODE: UNAUTHORIZED") {
		return "40100"
	}
	if strings.Contains(err.Error(), "failed to sync settings") {
		return "not started"
	}
	return err.Error()
}

func main() {
	_, mq.EnableSsl = os.LookupEnv("WITH_TLS")
	mq.ResetLogger()
	scenarios := map[string]func(string){
		"normal": normal, "again": again, "push": pushed, "dlq": dlq, "fifo": fifo, "delay": delay,
		"transaction": transaction, "restart": restart, "keys": locked,
	}
	for _, name := range os.Args[3:] {
		fmt.Println("==", name)
		scenarios[name](word + "-" + name)
	}
	fmt.Println("== end")
}
