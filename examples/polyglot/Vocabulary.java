import dev.leman.functions.FunctionServer;
import dev.leman.functions.ServedFunction;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.types.pojo.ArrowType;

/** Serves a function that counts the different words of a text, until it is asked to end. */
public final class Vocabulary {
  private static final Pattern WORD = Pattern.compile("[\\p{L}_][\\p{L}\\p{N}_]*");

  public static void main(String[] arguments) throws Exception {
    AtomicLong rows = new AtomicLong();
    AtomicLong batches = new AtomicLong();
    ServedFunction vocabulary =
        ServedFunction.named("vocabulary")
            .input("text", new ArrowType.Utf8())
            .output(new ArrowType.Int(64, true))
            .computedBy(
                (batch, values) -> {
                  VarCharVector texts = (VarCharVector) batch.getVector(0);
                  for (int row = 0; row < batch.getRowCount(); row++) {
                    ((BigIntVector) values).set(row, words(texts.get(row)).size());
                  }
                  rows.addAndGet(batch.getRowCount());
                  batches.incrementAndGet();
                });
    FunctionServer server = FunctionServer.builder().add(vocabulary).port(0).start();
    System.out.println("vocabulary is served at grpc://127.0.0.1:" + server.port());
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  server.close();
                  System.out.println(
                      "computed vocabulary for " + rows + " files, batches: " + batches);
                }));
    server.awaitTermination();
  }

  private static Set<String> words(byte[] text) {
    return WORD.matcher(new String(text, StandardCharsets.UTF_8))
        .results()
        .map(MatchResult::group)
        .collect(Collectors.toSet());
  }
}
