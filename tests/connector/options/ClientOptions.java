import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;

/** Prints the name of every option of Kafka's consumers and producers. */
class ClientOptions {
    public static void main(String[] arguments) {
        var names = new TreeSet<>(ConsumerConfig.configNames());
        names.addAll(ProducerConfig.configNames());
        names.forEach(System.out::println);
    }
}
