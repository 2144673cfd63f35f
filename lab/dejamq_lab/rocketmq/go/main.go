// One consumer of a recorded run: RocketMQ's own Go client, with message trace switched on.
//
//	actor consume NAMESRV TOPIC GROUP LOG [work=MS] [slow=KEY:MS]
//
// It prints a line for each message that its handler was given, and for each that its handler is done with. It ends in
// order when its standard input ends.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var saying sync.Mutex

func say(parts ...any) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(append([]any{time.Now().UnixMilli()}, parts...)...)
}

func main() {
	namesrv, topic, group := os.Args[2], os.Args[3], os.Args[4]
	must(rlog.SetOutputPath(os.Args[5]))
	options := map[string]string{}
	for _, option := range os.Args[6:] {
		name, value, _ := strings.Cut(option, "=")
		options[name] = value
	}
	trace := &primitive.TraceConfig{GroupName: group, Access: primitive.Local, NamesrvAddrs: []string{namesrv}}
	member, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName(group), consumer.WithNameServer([]string{namesrv}),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithTrace(trace),
	)
	must(err)
	must(member.Subscribe(topic, consumer.MessageSelector{}, func(
		_ context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			key := message.GetKeys()
			place := []any{message.MsgId, message.Topic, message.Queue.QueueId, message.QueueOffset}
			say(append(append([]any{"got", key}, place...), message.ReconsumeTimes, message.StoreHost)...)
			time.Sleep(work(options, key))
			say("done", key, true)
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(member.Start())
	say("ready")
	_, _ = io.ReadAll(os.Stdin)
	must(member.Shutdown())
	say("end")
}

func work(options map[string]string, key string) time.Duration {
	ms, _ := strconv.Atoi(options["work"])
	if slow, time, found := strings.Cut(options["slow"], ":"); found && slow == key {
		ms, _ = strconv.Atoi(time)
	}
	return time.Duration(ms) * time.Millisecond
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
