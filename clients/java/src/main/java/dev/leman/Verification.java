package dev.leman;

import dev.leman.v1.CommitServiceGrpc;
import dev.leman.v1.VerifyDatabaseRequest;
import dev.leman.v1.VerifyDatabaseResponse;
import java.util.NoSuchElementException;

/**
 * Reports what was checked, part by part; the last part has no resume token. If the services
 * restart or the connection breaks, it continues. Used by one thread; closing it ends the call.
 */
public final class Verification implements IteratorPublisher.Source<VerifyDatabaseResponse> {
  private final Connections connections;
  private final VerifyDatabaseRequest.Builder request;
  private final Patience waiting;
  private Answers<VerifyDatabaseRequest, VerifyDatabaseResponse> answers;
  private VerifyDatabaseResponse held;
  private boolean ended;

  Verification(Connections connections, String database, String resumeToken) {
    this.connections = connections;
    this.request =
        VerifyDatabaseRequest.newBuilder().setDatabase(database).setResumeToken(resumeToken);
    this.waiting = connections.patience();
  }

  @Override
  public boolean hasNext() {
    while (held == null && !ended) {
      try {
        held = open().next();
        waiting.reset();
        request.setResumeToken(held == null ? "" : held.getResumeToken());
        if (request.getResumeToken().isEmpty()) {
          end();
        }
      } catch (LemanException broken) {
        recover(broken);
      }
    }
    return held != null;
  }

  @Override
  public VerifyDatabaseResponse next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    VerifyDatabaseResponse part = held;
    held = null;
    return part;
  }

  /** End the verification. */
  @Override
  public void close() {
    held = null;
    end();
  }

  private Answers<VerifyDatabaseRequest, VerifyDatabaseResponse> open() {
    if (answers == null) {
      answers =
          connections.answers(CommitServiceGrpc.getVerifyDatabaseMethod(), request.build(), null);
    }
    return answers;
  }

  private void end() {
    ended = true;
    if (answers != null) {
      answers.close();
      answers = null;
    }
  }

  private void recover(LemanException broken) {
    String token = answers == null ? "" : answers.token();
    end();
    connections.beforeNextStream(broken, waiting, token);
    ended = false;
  }
}
