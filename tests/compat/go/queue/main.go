// franz-go as two members of a share group: records are accepted, one is rejected, one released until it is given up.
// Usage: queue ADDRESS TOPIC GROUP COUNT. Prints how often each record was delivered.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func member(address, topic, group string) *kgo.Client {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ShareGroup(group), kgo.ConsumeTopics(topic))
	if err != nil {
		log.Fatal(err)
	}
	return client
}

func main() {
	address, topic, group := os.Args[1], os.Args[2], os.Args[3]
	count, _ := strconv.Atoi(os.Args[4])
	deadline, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	members := []*kgo.Client{member(address, topic, group), member(address, topic, group)}
	deliveries := make(map[string]int32)
	done := make(map[string]bool)
	for len(done) < count && deadline.Err() == nil {
		for _, client := range members {
			polling, stop := context.WithTimeout(deadline, 200*time.Millisecond)
			fetches := client.PollFetches(polling)
			stop()
			fetches.EachRecord(func(record *kgo.Record) {
				value := string(record.Value)
				deliveries[value]++
				status := kgo.AckAccept
				if value == "reject" {
					status = kgo.AckReject
				} else if value == "release" {
					status = kgo.AckRelease
				}
				record.Ack(status)
				if status != kgo.AckRelease || record.DeliveryCount() == 5 {
					done[value] = true
				}
			})
		}
	}
	for _, client := range members {
		client.Close()
	}
	fmt.Println(deliveries)
}
