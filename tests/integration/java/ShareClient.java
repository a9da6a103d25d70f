// The Java client's share consumer and admin client against our broker. Each step prints one line, which the test reads.
// Run as: java -cp JARS ShareClient.java ADDRESS TOPIC, with messages "a" to "d" in partition 0 of the topic and settings
// of the groups "explicit" and "implicit" that let them begin at the earliest.

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.ShareMemberDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareClient {
    private static final long TIMEOUT_S = 60;

    private final String address;
    private final TopicPartition place;

    private ShareClient(String address, String topic) {
        this.address = address;
        this.place = new TopicPartition(topic, 0);
    }

    public static void main(String[] args) throws Exception {
        ShareClient client = new ShareClient(args[0], args[1]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            client.acknowledgeOneByOne(admin);
            client.acknowledgeByPolling(admin);
            client.administer(admin);
        }
        say("done", "");
    }

    // ---------------------------------------------------------------- consuming

    private void acknowledgeOneByOne(Admin admin) throws Exception {
        try (KafkaShareConsumer<String, String> consumer = consumer("explicit")) {
            List<ConsumerRecord<String, String>> first = take(consumer, 4);
            say("explicit", describe(first));
            say("lock", consumer.acquisitionLockTimeoutMs().orElse(-1));
            say("member", member(admin, "explicit"));
            say("busy", failure(admin.alterShareGroupOffsets("explicit", Map.of(place, 0L)).all()));
            consumer.acknowledge(first.get(0), AcknowledgeType.ACCEPT);
            consumer.acknowledge(first.get(1), AcknowledgeType.RELEASE);
            consumer.acknowledge(first.get(2), AcknowledgeType.REJECT);
            consumer.acknowledge(first.get(3), AcknowledgeType.RENEW);
            say("commit", commit(consumer));
            say("again", describe(takeAndAccept(consumer, 2)));
            say("commit", commit(consumer));
        }
    }

    private void acknowledgeByPolling(Admin admin) throws Exception {
        try (KafkaShareConsumer<String, String> consumer = consumer("implicit")) {
            say("implicit", describe(take(consumer, 4)));
            consumer.poll(Duration.ofMillis(100));
            say("commit", commit(consumer));
        }
    }

    private KafkaShareConsumer<String, String> consumer(String mode) {
        KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(
            Map.of(
                "bootstrap.servers", address,
                "group.id", mode,
                "client.id", "java",
                "share.acknowledgement.mode", mode),
            new StringDeserializer(),
            new StringDeserializer());
        consumer.subscribe(List.of(place.topic()));
        return consumer;
    }

    private static List<ConsumerRecord<String, String>> take(KafkaShareConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
        while (found.size() < count && System.nanoTime() < deadline)
            consumer.poll(Duration.ofMillis(200)).forEach(found::add);
        return found;
    }

    // A poll fails as long as something is not acknowledged, also what was renewed and is given again.
    private static List<ConsumerRecord<String, String>> takeAndAccept(
            KafkaShareConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        while (found.size() < count) {
            List<ConsumerRecord<String, String>> some = take(consumer, 1);
            if (some.isEmpty()) break;
            some.forEach(consumer::acknowledge);
            found.addAll(some);
        }
        return found;
    }

    private static String describe(List<ConsumerRecord<String, String>> records) {
        List<String> words = new ArrayList<>();
        for (ConsumerRecord<String, String> one : records)
            words.add(one.offset() + ":" + one.value() + ":" + one.deliveryCount().orElse((short) -1));
        return String.join(" ", words);
    }

    private static String commit(KafkaShareConsumer<String, String> consumer) {
        List<String> words = new ArrayList<>();
        consumer.commitSync(Duration.ofSeconds(TIMEOUT_S)).forEach((where, error) ->
            words.add(where.partition() + ":" + error.map(KafkaException::toString).orElse("ok")));
        return String.join(" ", words);
    }

    // ---------------------------------------------------------------- administering

    private static String member(Admin admin, String group) throws Exception {
        ShareGroupDescription found = get(admin.describeShareGroups(List.of(group)).all()).get(group);
        List<String> words = new ArrayList<>(List.of(found.groupState().toString()));
        for (ShareMemberDescription one : found.members())
            words.add(one.clientId() + ":" + one.assignment().topicPartitions());
        return String.join(" ", words);
    }

    private void administer(Admin admin) throws Exception {
        Map<String, String> groups = new TreeMap<>();
        for (GroupListing one : get(admin.listGroups().all()))
            groups.put(one.groupId(), one.type().orElseThrow() + ":" + one.groupState().orElseThrow());
        say("groups", groups);
        say("empty", member(admin, "explicit"));
        ListShareGroupOffsetsSpec named = new ListShareGroupOffsetsSpec().topicPartitions(List.of(place));
        say("offset", offset(admin, named));
        get(admin.alterShareGroupOffsets("explicit", Map.of(place, 1L)).all());
        say("altered", offset(admin, new ListShareGroupOffsetsSpec()));
        try (KafkaShareConsumer<String, String> consumer = consumer("explicit")) {
            say("resumed", describe(takeAndAccept(consumer, 3)));
            say("commit", commit(consumer));
        }
        say("beyond", failure(admin.alterShareGroupOffsets("explicit", Map.of(place, 99L)).partitionResult(place)));
        get(admin.deleteShareGroupOffsets("explicit", Set.of(place.topic())).all());
        say("forgotten", offset(admin, named));
        say("unknown", failure(admin.describeShareGroups(List.of("nobody")).all()));
        get(admin.deleteShareGroups(List.of("explicit")).all());
        say("deleted", failure(admin.describeShareGroups(List.of("explicit")).all()));
    }

    private String offset(Admin admin, ListShareGroupOffsetsSpec spec) throws Exception {
        SharePartitionOffsetInfo found = get(
            admin.listShareGroupOffsets(Map.of("explicit", spec)).partitionsToOffsetInfo("explicit")).get(place);
        return found == null ? "none" : found.startOffset() + " lag " + found.lag().orElse(-1L);
    }

    private static String failure(KafkaFuture<?> future) throws Exception {
        try {
            get(future);
            return "none";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage();
        }
    }

    private static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(TIMEOUT_S, TimeUnit.SECONDS);
    }

    private static void say(String what, Object how) {
        System.out.println(what + " " + how);
    }
}
