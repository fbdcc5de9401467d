package dev.leman;

import com.google.protobuf.ByteString;
import dev.leman.internal.Arguments;
import io.grpc.Status;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.channels.Channels;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/** Encodes and decodes Arrow schemas as IPC messages, as the services send them. */
public final class Schemas {
  private Schemas() {}

  /**
   * Decode the schema in a field such as {@link dev.leman.v1.DescribeTableResponse#getSchema}.
   *
   * @throws LemanException DATA_LOSS if it is invalid
   */
  public static Schema read(ByteString message) {
    Arguments.given("message", message);
    try (ReadChannel channel =
        new ReadChannel(Channels.newChannel(new ByteArrayInputStream(message.toByteArray())))) {
      return MessageSerializer.deserializeSchema(channel);
    } catch (IOException broken) {
      throw new LemanException(Status.Code.DATA_LOSS, "", "what came is no Arrow schema", broken);
    }
  }

  /** Encode a schema for a request. */
  public static ByteString write(Schema schema) {
    Arguments.given("schema", schema);
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (WriteChannel channel = new WriteChannel(Channels.newChannel(bytes))) {
      MessageSerializer.serialize(channel, schema);
    } catch (IOException impossible) {
      throw new IllegalStateException("bytes in memory cannot be written", impossible);
    }
    return ByteString.copyFrom(bytes.toByteArray());
  }
}
