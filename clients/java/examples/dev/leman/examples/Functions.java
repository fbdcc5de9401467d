package dev.leman.examples;

import dev.leman.functions.FunctionServer;
import dev.leman.functions.ServedFunction;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.types.pojo.ArrowType;

/** Serves a function of text, until the program is stopped. */
public final class Functions {
  /** Arguments: what callers have to show. */
  public static void main(String[] arguments) throws IOException, InterruptedException {
    ServedFunction length =
        ServedFunction.named("length")
            .input("text", new ArrowType.Utf8())
            .output(new ArrowType.Int(64, true))
            .computedBy(
                (batch, values) -> {
                  VarCharVector texts = (VarCharVector) batch.getVector(0);
                  for (int row = 0; row < batch.getRowCount(); row++) {
                    if (!texts.isNull(row)) {
                      String text = new String(texts.get(row), StandardCharsets.UTF_8);
                      ((BigIntVector) values).set(row, text.length());
                    }
                  }
                });
    try (FunctionServer server =
        FunctionServer.builder().add(length).port(7815).token(arguments[0]).start()) {
      server.awaitTermination();
    }
  }
}
