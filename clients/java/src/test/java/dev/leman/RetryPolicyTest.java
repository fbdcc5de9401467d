package dev.leman;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import dev.leman.v1.CatalogServiceGrpc;
import dev.leman.v1.JobServiceGrpc;
import io.grpc.Status;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import org.junit.jupiter.api.Test;

class RetryPolicyTest {
  @Test
  void theEmbeddedPolicyIsThePublishedOne() throws IOException {
    byte[] published = Files.readAllBytes(Path.of("../../protos/leman/v1", RetryPolicy.RESOURCE));
    try (var embedded = RetryPolicy.class.getResourceAsStream(RetryPolicy.RESOURCE)) {
      assertEquals(new String(published), new String(embedded.readAllBytes()));
    }
  }

  @Test
  void itSaysWhichCallsMayBeMadeAgain() {
    RetryPolicy policy = RetryPolicy.published();
    RetryPolicy.Rule rule = policy.rule(JobServiceGrpc.getGetJobMethod().getFullMethodName());
    assertEquals(Set.of(Status.Code.UNAVAILABLE, Status.Code.RESOURCE_EXHAUSTED), rule.codes());
    assertEquals(5, rule.maxAttempts());
    assertNull(policy.rule(CatalogServiceGrpc.getAddColumnsMethod().getFullMethodName()));
  }
}
