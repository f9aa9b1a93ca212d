"""What each of the connector's requests makes of each error that brokers answer it with: one line a pair.

Written from what Apache Kafka's own clients do (trunk: TransactionManager's handlers and Sender for the
producer's requests, ConsumerCoordinator, OffsetFetcher and FetchCollector for the reader's, the admin
client for the rest) and from the KIPs, not from the connector's tables. A star marks a line in which the
connector means to do something else than those clients; the reason stands behind it.

again: sent once more until a time-out. briefly: the same, for 2 s. refused: raised, not sent again.
answer: no error, but what was asked.
"""

from typing import NamedTuple


class Pair(NamedTuple):
    """One line. `departs`: from what Apache Kafka's client does."""

    request: str
    error: str
    outcome: str
    departs: bool
    why: str


_LINES = """
Produce CORRUPT_MESSAGE again the batch was damaged on its way
Produce UNKNOWN_TOPIC_OR_PARTITION again the broker may not have heard of the topic yet
Produce LEADER_NOT_AVAILABLE again
Produce NOT_LEADER_OR_FOLLOWER again ambiguous: a leader may step down after it has written (KIP-98 sequence)
Produce REQUEST_TIMED_OUT again ambiguous: the sequence number tells a repetition (KIP-98)
Produce NETWORK_EXCEPTION again ambiguous, the same
Produce NOT_ENOUGH_REPLICAS again nothing was written
Produce NOT_ENOUGH_REPLICAS_AFTER_APPEND again ambiguous: written, to too few; the sequence tells a repetition
Produce KAFKA_STORAGE_ERROR again ambiguous: KIP-112, another replica may lead
Produce CONCURRENT_TRANSACTIONS again KIP-890: the last transaction's markers are on their way
Produce COORDINATOR_LOAD_IN_PROGRESS again KIP-890: the partition is verified with the coordinator
Produce COORDINATOR_NOT_AVAILABLE again KIP-890
Produce NOT_COORDINATOR again KIP-890
Produce FENCED_LEADER_EPOCH again KIP-320
Produce UNKNOWN_LEADER_EPOCH again KIP-320
Produce THROTTLING_QUOTA_EXCEEDED again KIP-599
Produce UNKNOWN_TOPIC_ID again KIP-516: looked up again, where a topic created again is noticed
Produce DUPLICATE_SEQUENCE_NUMBER answer Sender completes the batch: it was written
Produce OUT_OF_ORDER_SEQUENCE_NUMBER refused of the oldest batch: what was acknowledged is lost (KIP-360)
Produce UNKNOWN_PRODUCER_ID refused * Java may begin its sequences anew; here the whole task is tried again
Produce MESSAGE_TOO_LARGE refused * Java splits the batch; here rows are told from too large ones before
Produce RECORD_LIST_TOO_LARGE refused
Produce INVALID_RECORD refused
Produce INVALID_TIMESTAMP refused
Produce INVALID_PRODUCER_EPOCH refused KIP-588: the transaction is aborted
Produce PRODUCER_FENCED refused
Produce INVALID_PRODUCER_ID_MAPPING refused
Produce INVALID_TXN_STATE refused KIP-890
Produce TRANSACTION_ABORTABLE refused KIP-890: the transaction is aborted
Produce TOPIC_AUTHORIZATION_FAILED refused
Produce CLUSTER_AUTHORIZATION_FAILED refused
Produce TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
Produce UNSUPPORTED_FOR_MESSAGE_FORMAT refused
Produce UNSUPPORTED_COMPRESSION_TYPE refused
Produce INVALID_REQUIRED_ACKS refused
Produce INVALID_TOPIC_EXCEPTION refused
Produce UNKNOWN_SERVER_ERROR refused ambiguous: the task's transaction is aborted, and the task tried again
InitProducerId NOT_COORDINATOR again
InitProducerId COORDINATOR_NOT_AVAILABLE again
InitProducerId COORDINATOR_LOAD_IN_PROGRESS again
InitProducerId CONCURRENT_TRANSACTIONS again KIP-98: the open transaction is being aborted
InitProducerId REQUEST_TIMED_OUT again ambiguous: an epoch is raised twice at worst
InitProducerId NOT_ENOUGH_REPLICAS again
InitProducerId UNKNOWN_TOPIC_OR_PARTITION again
InitProducerId TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
InitProducerId CLUSTER_AUTHORIZATION_FAILED refused
InitProducerId INVALID_PRODUCER_EPOCH refused KIP-360: somebody else has it
InitProducerId PRODUCER_FENCED refused
InitProducerId INVALID_TRANSACTION_TIMEOUT refused
InitProducerId UNSUPPORTED_VERSION refused KIP-939
InitProducerId INVALID_PRODUCER_ID_MAPPING refused
InitProducerId TRANSACTION_ABORTABLE refused
InitProducerId UNKNOWN_SERVER_ERROR refused
AddPartitionsToTxn COORDINATOR_NOT_AVAILABLE again
AddPartitionsToTxn NOT_COORDINATOR again
AddPartitionsToTxn COORDINATOR_LOAD_IN_PROGRESS again
AddPartitionsToTxn CONCURRENT_TRANSACTIONS again
AddPartitionsToTxn UNKNOWN_TOPIC_OR_PARTITION again the topic may be new
AddPartitionsToTxn REQUEST_TIMED_OUT again
AddPartitionsToTxn INVALID_PRODUCER_EPOCH refused
AddPartitionsToTxn PRODUCER_FENCED refused
AddPartitionsToTxn TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
AddPartitionsToTxn INVALID_TXN_STATE refused
AddPartitionsToTxn INVALID_PRODUCER_ID_MAPPING refused
AddPartitionsToTxn TOPIC_AUTHORIZATION_FAILED refused
AddPartitionsToTxn OPERATION_NOT_ATTEMPTED refused
AddPartitionsToTxn UNKNOWN_PRODUCER_ID refused
AddPartitionsToTxn TRANSACTION_ABORTABLE refused
AddOffsetsToTxn COORDINATOR_NOT_AVAILABLE again
AddOffsetsToTxn NOT_COORDINATOR again
AddOffsetsToTxn COORDINATOR_LOAD_IN_PROGRESS again
AddOffsetsToTxn CONCURRENT_TRANSACTIONS again
AddOffsetsToTxn REQUEST_TIMED_OUT again
AddOffsetsToTxn UNKNOWN_PRODUCER_ID refused
AddOffsetsToTxn INVALID_PRODUCER_EPOCH refused
AddOffsetsToTxn PRODUCER_FENCED refused
AddOffsetsToTxn TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
AddOffsetsToTxn INVALID_TXN_STATE refused
AddOffsetsToTxn INVALID_PRODUCER_ID_MAPPING refused
AddOffsetsToTxn GROUP_AUTHORIZATION_FAILED refused
AddOffsetsToTxn TRANSACTION_ABORTABLE refused
TxnOffsetCommit COORDINATOR_NOT_AVAILABLE again
TxnOffsetCommit NOT_COORDINATOR again
TxnOffsetCommit REQUEST_TIMED_OUT again
TxnOffsetCommit COORDINATOR_LOAD_IN_PROGRESS again
TxnOffsetCommit CONCURRENT_TRANSACTIONS again KIP-890
TxnOffsetCommit NOT_ENOUGH_REPLICAS again
TxnOffsetCommit UNKNOWN_TOPIC_OR_PARTITION briefly * Java goes on for long; the source topic is deleted
TxnOffsetCommit GROUP_AUTHORIZATION_FAILED refused
TxnOffsetCommit TOPIC_AUTHORIZATION_FAILED refused
TxnOffsetCommit FENCED_INSTANCE_ID refused
TxnOffsetCommit TRANSACTION_ABORTABLE refused KIP-890
TxnOffsetCommit UNKNOWN_MEMBER_ID refused the group has members
TxnOffsetCommit ILLEGAL_GENERATION refused
TxnOffsetCommit GROUP_ID_NOT_FOUND refused
TxnOffsetCommit STALE_MEMBER_EPOCH refused
TxnOffsetCommit INVALID_PRODUCER_EPOCH refused
TxnOffsetCommit PRODUCER_FENCED refused
TxnOffsetCommit INVALID_TXN_STATE refused
TxnOffsetCommit INVALID_PRODUCER_ID_MAPPING refused
TxnOffsetCommit TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
TxnOffsetCommit UNSUPPORTED_FOR_MESSAGE_FORMAT refused
TxnOffsetCommit OFFSET_METADATA_TOO_LARGE refused
TxnOffsetCommit INVALID_COMMIT_OFFSET_SIZE refused
TxnOffsetCommit INVALID_GROUP_ID refused
TxnOffsetCommit UNKNOWN_SERVER_ERROR refused ambiguous: the sink's transaction is aborted
EndTxn COORDINATOR_NOT_AVAILABLE again
EndTxn NOT_COORDINATOR again
EndTxn COORDINATOR_LOAD_IN_PROGRESS again
EndTxn CONCURRENT_TRANSACTIONS again KIP-890: an earlier try is being carried out
EndTxn REQUEST_TIMED_OUT again ambiguous: the same version and epoch tell a repetition (KIP-890)
EndTxn NOT_ENOUGH_REPLICAS again
EndTxn NETWORK_EXCEPTION again ambiguous, the same
EndTxn INVALID_PRODUCER_EPOCH refused
EndTxn PRODUCER_FENCED refused
EndTxn TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
EndTxn INVALID_TXN_STATE refused
EndTxn INVALID_PRODUCER_ID_MAPPING refused
EndTxn UNKNOWN_PRODUCER_ID refused
EndTxn TRANSACTION_ABORTABLE refused
EndTxn UNKNOWN_SERVER_ERROR refused ambiguous: whoever sent it asks what became of it
FindCoordinator COORDINATOR_NOT_AVAILABLE again
FindCoordinator COORDINATOR_LOAD_IN_PROGRESS again
FindCoordinator REQUEST_TIMED_OUT again
FindCoordinator TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
FindCoordinator GROUP_AUTHORIZATION_FAILED refused
FindCoordinator TRANSACTION_ABORTABLE refused
FindCoordinator INVALID_REQUEST refused
FindCoordinator INVALID_GROUP_ID refused
FindCoordinator UNKNOWN_SERVER_ERROR refused
Metadata LEADER_NOT_AVAILABLE again the topic is being made
Metadata REPLICA_NOT_AVAILABLE again
Metadata UNKNOWN_TOPIC_OR_PARTITION again then UnknownTopic: waited for a second, or five to be made
Metadata INVALID_TOPIC_EXCEPTION refused
Metadata TOPIC_AUTHORIZATION_FAILED refused
Metadata UNKNOWN_SERVER_ERROR refused
ListOffsets UNKNOWN_TOPIC_OR_PARTITION again
ListOffsets NOT_LEADER_OR_FOLLOWER again
ListOffsets REPLICA_NOT_AVAILABLE again
ListOffsets LEADER_NOT_AVAILABLE again
ListOffsets KAFKA_STORAGE_ERROR again
ListOffsets OFFSET_NOT_AVAILABLE again KIP-207: the new leader's end is not known yet
ListOffsets FENCED_LEADER_EPOCH again KIP-320
ListOffsets UNKNOWN_LEADER_EPOCH again KIP-320
ListOffsets TOPIC_AUTHORIZATION_FAILED refused
ListOffsets UNSUPPORTED_FOR_MESSAGE_FORMAT refused * Java leaves the partition out; offsets would be missing
ListOffsets UNKNOWN_SERVER_ERROR refused
ListOffsets INVALID_REQUEST refused
Fetch NOT_LEADER_OR_FOLLOWER again
Fetch REPLICA_NOT_AVAILABLE again
Fetch KAFKA_STORAGE_ERROR again
Fetch FENCED_LEADER_EPOCH again KIP-320
Fetch UNKNOWN_LEADER_EPOCH again KIP-320
Fetch OFFSET_NOT_AVAILABLE again
Fetch UNKNOWN_TOPIC_OR_PARTITION again
Fetch UNKNOWN_TOPIC_ID again KIP-516: looked up again, where a topic created again is noticed
Fetch INCONSISTENT_TOPIC_ID again KIP-516
Fetch FETCH_SESSION_ID_NOT_FOUND again KIP-227
Fetch UNKNOWN_SERVER_ERROR again FetchCollector warns and goes on
Fetch OFFSET_OUT_OF_RANGE answer OffsetsGone, as with auto.offset.reset=none
Fetch CORRUPT_MESSAGE refused FetchCollector raises it
Fetch TOPIC_AUTHORIZATION_FAILED refused
Fetch UNSUPPORTED_COMPRESSION_TYPE refused
OffsetFetch COORDINATOR_LOAD_IN_PROGRESS again
OffsetFetch COORDINATOR_NOT_AVAILABLE again
OffsetFetch NOT_COORDINATOR again
OffsetFetch UNSTABLE_OFFSET_COMMIT again KIP-447
OffsetFetch UNKNOWN_TOPIC_OR_PARTITION briefly * Java raises at once; a new broker may not know
OffsetFetch GROUP_AUTHORIZATION_FAILED refused
OffsetFetch TOPIC_AUTHORIZATION_FAILED refused
OffsetFetch UNKNOWN_MEMBER_ID refused
OffsetFetch STALE_MEMBER_EPOCH refused
OffsetFetch UNKNOWN_SERVER_ERROR refused never taken for "no offsets"
OffsetCommit COORDINATOR_LOAD_IN_PROGRESS again
OffsetCommit COORDINATOR_NOT_AVAILABLE again
OffsetCommit NOT_COORDINATOR again
OffsetCommit REQUEST_TIMED_OUT again ambiguous: the same offsets once more change nothing
OffsetCommit UNKNOWN_TOPIC_OR_PARTITION briefly * Java goes on for long
OffsetCommit GROUP_AUTHORIZATION_FAILED refused
OffsetCommit TOPIC_AUTHORIZATION_FAILED refused
OffsetCommit OFFSET_METADATA_TOO_LARGE refused
OffsetCommit INVALID_COMMIT_OFFSET_SIZE refused
OffsetCommit FENCED_INSTANCE_ID refused
OffsetCommit REBALANCE_IN_PROGRESS refused
OffsetCommit UNKNOWN_MEMBER_ID refused
OffsetCommit ILLEGAL_GENERATION refused
OffsetCommit UNKNOWN_SERVER_ERROR refused
DescribeTransactions COORDINATOR_LOAD_IN_PROGRESS again
DescribeTransactions COORDINATOR_NOT_AVAILABLE again
DescribeTransactions NOT_COORDINATOR again
DescribeTransactions TRANSACTIONAL_ID_NOT_FOUND answer
DescribeTransactions TRANSACTIONAL_ID_AUTHORIZATION_FAILED refused
DescribeTransactions INVALID_REQUEST refused
DescribeTransactions UNKNOWN_SERVER_ERROR refused never taken for "unknown id"
ListTransactions COORDINATOR_LOAD_IN_PROGRESS again an empty list is no proof
ListTransactions COORDINATOR_NOT_AVAILABLE again * Java takes it for an empty list; that is no proof
ListTransactions CLUSTER_AUTHORIZATION_FAILED refused
ListTransactions INVALID_REGULAR_EXPRESSION refused
ListTransactions UNKNOWN_SERVER_ERROR refused never taken for "none"
WriteTxnMarkers NOT_LEADER_OR_FOLLOWER again
WriteTxnMarkers REPLICA_NOT_AVAILABLE again
WriteTxnMarkers NOT_ENOUGH_REPLICAS_AFTER_APPEND again ambiguous: the same marker twice changes nothing
WriteTxnMarkers REQUEST_TIMED_OUT again ambiguous, the same
WriteTxnMarkers UNKNOWN_TOPIC_OR_PARTITION briefly * Java goes on for long
WriteTxnMarkers CLUSTER_AUTHORIZATION_FAILED refused
WriteTxnMarkers INVALID_PRODUCER_EPOCH refused
WriteTxnMarkers TRANSACTION_COORDINATOR_FENCED refused a newer coordinator is at work
WriteTxnMarkers UNKNOWN_SERVER_ERROR refused
DescribeProducers NOT_LEADER_OR_FOLLOWER again
DescribeProducers UNKNOWN_TOPIC_OR_PARTITION answer after 2 s * Java goes on; what is gone holds nothing
DescribeProducers TOPIC_AUTHORIZATION_FAILED answer * Java raises it; here the coordinator is believed
DescribeProducers INVALID_TOPIC_EXCEPTION refused
DescribeProducers UNKNOWN_SERVER_ERROR refused
"""


def _pair(line: str) -> Pair:
    request, error, outcome, *rest = line.split(maxsplit=3)
    why = rest[0] if rest else ""
    return Pair(request, error, outcome, "*" in why, why.replace("* ", ""))


PAIRS = tuple(map(_pair, filter(None, _LINES.splitlines())))
"""Every pair that is judged."""
