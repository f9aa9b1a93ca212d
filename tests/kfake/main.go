// A cluster of franz-go's kfake, as one process to test against: a broker that is neither Kafka nor eoslog's.
//
//	kfake -port 9092 -data DIRECTORY [-config name=value]...
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	port := flag.Int("port", 0, "port to listen on")
	data := flag.String("data", "", "directory of the log, which outlives the process")
	partitions := flag.Int("partitions", 1, "partitions of topics that are created on request")
	configs := map[string]string{}
	flag.Func("config", "broker config, name=value; may be repeated", func(given string) error {
		name, value, found := strings.Cut(given, "=")
		if !found {
			return fmt.Errorf("%q is not name=value", given)
		}
		configs[name] = value
		return nil
	})
	flag.Parse()
	options := []kfake.Opt{
		kfake.NumBrokers(1), kfake.Ports(*port), kfake.DataDir(*data), kfake.SyncWrites(),
		kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(*partitions), kfake.BrokerConfigs(configs),
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer cluster.Close()
	fmt.Println("ready on", cluster.ListenAddrs())
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
}
