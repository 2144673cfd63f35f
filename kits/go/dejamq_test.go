package testkit

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/testcontainers/testcontainers-go"
)

func image() string {
	if named := os.Getenv("DEJAMQ_IMAGE"); named != "" {
		return named
	}
	return "dejamq:local"
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnOrderIsSentAgainWhenTheAnswerIsLostAndTheDuplicateIsExplained(t *testing.T) {
	ctx := context.Background()
	mq, err := Run(ctx, image())
	testcontainers.CleanupContainer(t, mq.Container)
	must(t, err)

	shop, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{mq.Namesrv}), producer.WithGroupName("shop"),
		producer.WithSendMsgTimeout(2*time.Second), producer.WithRetry(2))
	must(t, err)
	must(t, shop.Start())
	must(t, mq.AnswerLost(ctx, "send", 1))
	_, err = shop.SendSync(ctx, primitive.NewMessage("orders", []byte("order-17")))
	must(t, err) // the client tried again by itself
	must(t, shop.Shutdown())

	got := make(chan string, 10)
	billing, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{mq.Namesrv}), consumer.WithGroupName("billing"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	must(t, err)
	must(t, billing.Subscribe("orders", consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				got <- string(message.Body)
			}
			return consumer.ConsumeSuccess, nil
		}))
	must(t, billing.Start())
	for range 2 {
		select {
		case body := <-got:
			if body != "order-17" {
				t.Fatalf("got %q", body)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("no message came")
		}
	}
	must(t, billing.Shutdown())

	duplicates, err := mq.Duplicates(ctx, "billing")
	must(t, err)
	if len(duplicates) != 1 || duplicates[0].Cause != "P1" {
		t.Fatalf("got %+v", duplicates)
	}

	err = mq.AnswerLost(ctx, "snd", 1)
	if err == nil || !strings.Contains(err.Error(), "operation is one of send") {
		t.Fatalf("got %v", err)
	}
}
