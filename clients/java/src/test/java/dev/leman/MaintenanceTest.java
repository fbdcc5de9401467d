package dev.leman;

import static dev.leman.Served.refusal;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.rpc.Code;
import dev.leman.v1.CancelJobsRequest;
import dev.leman.v1.CancelJobsResponse;
import dev.leman.v1.CollectGarbageRequest;
import dev.leman.v1.CollectGarbageResponse;
import dev.leman.v1.Commit;
import dev.leman.v1.CommitServiceGrpc;
import dev.leman.v1.GetCommitRequest;
import dev.leman.v1.GetCommitResponse;
import dev.leman.v1.GetRowStatesRequest;
import dev.leman.v1.GetRowStatesResponse;
import dev.leman.v1.IndexCoverage;
import dev.leman.v1.JobServiceGrpc;
import dev.leman.v1.OptimizeIndicesRequest;
import dev.leman.v1.OptimizeIndicesResponse;
import dev.leman.v1.PlannerServiceGrpc;
import dev.leman.v1.VerifyDatabaseRequest;
import dev.leman.v1.VerifyDatabaseResponse;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Maintenance of a database: the requests, and the results. */
@Timeout(30)
class MaintenanceTest {
  @Test
  void relationsAreTidied() throws IOException {
    try (Served served = Served.of(new Commits(), new Planner())) {
      Table docs = served.database().table("docs");
      assertEquals("a,b", docs.optimizeIndices("a", "b").get(0).getName());
      assertEquals(3600, docs.collectGarbage(Duration.ofHours(1), true).getFilesRemoved());
      assertEquals(0, docs.collectGarbage(Duration.ofHours(1), false).getFilesRemoved());
      assertEquals(5, served.database().view("seen").commit("r-5").getVersion());
      assertEquals(9, docs.rowStates("letters").getRowsComputed());
    }
  }

  @Test
  void jobsAreCancelledByAQuery() throws IOException {
    try (Served served = Served.of(new Jobs())) {
      CancelJobsResponse told =
          served.database().cancelJobs(JobQuery.all().tables("docs").column("letters"));
      assertEquals(List.of("lake", "docs", "letters"), List.copyOf(told.getJobsElsewhereList()));
    }
  }

  @Test
  void aVerificationGoesOnWhereItWasCut() throws IOException {
    Commits commits = new Commits();
    try (Served served = Served.of(commits);
        Verification verification = served.database().verify()) {
      List<String> tables = new ArrayList<>();
      verification.forEachRemaining(part -> tables.add(part.getTable()));
      assertEquals(List.of("a", "b", ""), tables);
      assertEquals(List.of("", "behind a"), commits.tokens);
      assertFalse(verification.hasNext());
    }
  }

  @Test
  void aVerificationThatIsRefusedSaysSo() throws IOException {
    Commits commits = new Commits();
    try (Served served = Served.of(commits);
        Verification verification = served.database().verify("of another database")) {
      LemanException refused = assertThrows(LemanException.class, verification::hasNext);
      assertEquals("BAD_RESUME_TOKEN", refused.reason());
      assertFalse(verification.hasNext());
      assertTrue(commits.tokens.contains("of another database"));
    }
  }

  /** Responds with the request. */
  private static final class Commits extends CommitServiceGrpc.CommitServiceImplBase {
    final List<String> tokens = new ArrayList<>();

    @Override
    public void getCommit(GetCommitRequest request, StreamObserver<GetCommitResponse> answer) {
      Commit commit =
          Commit.newBuilder().setVersion(request.getRequestId().equals("r-5") ? 5 : 0).build();
      answer.onNext(GetCommitResponse.newBuilder().setCommit(commit).build());
      answer.onCompleted();
    }

    @Override
    public void optimizeIndices(
        OptimizeIndicesRequest request, StreamObserver<OptimizeIndicesResponse> answer) {
      String columns = String.join(",", request.getColumnsList());
      answer.onNext(
          OptimizeIndicesResponse.newBuilder()
              .addIndices(IndexCoverage.newBuilder().setName(columns))
              .build());
      answer.onCompleted();
    }

    @Override
    public void collectGarbage(
        CollectGarbageRequest request, StreamObserver<CollectGarbageResponse> answer) {
      long told = request.getDryRun() ? request.getOlderThan().getSeconds() : 0;
      answer.onNext(CollectGarbageResponse.newBuilder().setFilesRemoved(told).build());
      answer.onCompleted();
    }

    @Override
    public void verifyDatabase(
        VerifyDatabaseRequest request, StreamObserver<VerifyDatabaseResponse> answer) {
      tokens.add(request.getResumeToken());
      switch (request.getResumeToken()) {
        case "" -> {
          answer.onNext(part("a", "behind a"));
          answer.onError(refusal(Code.UNAVAILABLE, "DRAINING"));
        }
        case "behind a" -> {
          answer.onNext(part("b", "behind b"));
          answer.onNext(part("", ""));
          answer.onCompleted();
        }
        default -> answer.onError(refusal(Code.INVALID_ARGUMENT, "BAD_RESUME_TOKEN"));
      }
    }

    private static VerifyDatabaseResponse part(String table, String token) {
      return VerifyDatabaseResponse.newBuilder().setTable(table).setResumeToken(token).build();
    }
  }

  private static final class Planner extends PlannerServiceGrpc.PlannerServiceImplBase {
    @Override
    public void getRowStates(
        GetRowStatesRequest request, StreamObserver<GetRowStatesResponse> answer) {
      int told = request.getColumn().equals("letters") ? 9 : 0;
      answer.onNext(GetRowStatesResponse.newBuilder().setRowsComputed(told).build());
      answer.onCompleted();
    }
  }

  private static final class Jobs extends JobServiceGrpc.JobServiceImplBase {
    @Override
    public void cancelJobs(CancelJobsRequest request, StreamObserver<CancelJobsResponse> answer) {
      answer.onNext(
          CancelJobsResponse.newBuilder()
              .addJobsElsewhere(request.getDatabase())
              .addAllJobsElsewhere(request.getFilter().getTablesList())
              .addJobsElsewhere(request.getFilter().getColumn())
              .build());
      answer.onCompleted();
    }
  }
}
