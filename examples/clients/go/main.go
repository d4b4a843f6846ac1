// franz-go: three records written, and read as a member of a group.
// Usage: go run . [BOOTSTRAP]
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	bootstrap := "127.0.0.1:9092"
	if len(os.Args) > 1 {
		bootstrap = os.Args[1]
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumerGroup("readers"),
		kgo.ConsumeTopics("greetings"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx := context.Background()
	for number := range 3 {
		record := &kgo.Record{Topic: "greetings", Key: []byte("ann"), Value: fmt.Appendf(nil, "hello %d", number)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			log.Fatal(err)
		}
	}
	for read := 0; read < 3; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			log.Fatal(err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Printf("%d:%d %s %s\n", record.Partition, record.Offset, record.Key, record.Value)
			read++
		})
	}
}
